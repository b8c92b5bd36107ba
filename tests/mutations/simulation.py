"""The virtual world: flows, TCP, hosts, best effort, folding, and what it says about its own validity."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit, instead

TCP, HOST = ("tests/simulation/test_tcp.py",), ("tests/simulation/test_host.py",)
FLOWS, BEST = ("tests/simulation/test_flows.py",), ("tests/simulation/test_best_effort.py",)
VALIDITY, FOLD = ("tests/simulation/test_validity.py",), ("tests/simulation/test_fold.py",)
COSTS = ("tests/simulation/test_costs.py",)
INBOX = ("tests/simulation/test_inbox.py",)
DROP_TAIL = ("tests/simulation/test_drop_tail.py",)
PACKETS = tuple(f"tests/simulation/packets/test_{name}.py" for name in ("link", "receiver", "connection"))
LAN = ("tests/simulation/packets/test_lan.py",)
BBR = ("tests/simulation/packets/test_bbr.py",)
CHECKPOINTS, BACKGROUND = ("tests/simulation/test_checkpoints.py",), ("tests/simulation/test_background.py",)
LOST, LOST_LINKS = ("tests/simulation/test_lost.py",), ("tests/faults/test_links.py",)
MUTATIONS: dict[str, Mutation] = {
    "connections of a LAN have open windows": Mutation(
        "testbed.simulation.packets.lan_sender:LanSender._arrived",
        edit("self._window_bytes += size_bytes", "self._window_bytes = 1e9"),
        ("tests/simulation/packets/test_lan.py",),
    ),
    "codecs cost nothing": Mutation("testbed.compute_model:ComputeModel._cost_s", always(0.0), COSTS),
    "payloads cost nothing": Mutation(
        "testbed.costs:Row.seconds", edit(" + payload_bytes * self.payload_byte_s", ""), COSTS
    ),
    "rows of sums and copies have no effect": Mutation(
        "testbed.compute_model:ComputeModel.duration_s", edit("and work.kind in self.costs", "and False"), COSTS
    ),
    "copies cost nothing": Mutation(
        "testbed.simulation.compute:SimulatedProcessor.compute", edit("not self._model.copies_cost", "True"), COSTS
    ),
    "one contribution is added up": Mutation(
        "testbed.engine.server:Server._aggregate", edit("in sizes) == 1", "in sizes) == 0"), COSTS
    ),
    "new work overtakes work that waits for the device": Mutation(
        "testbed.simulation.compute:SimulatedProcessor._pass_on", edit("bool(self._turns)", "False"), COSTS
    ),
    "codecs work on as many cores as they like": Mutation(
        "testbed.simulation.node:CodingCore.take",
        edit("max(now_s, self.busy_until_s) + work_s", "now_s + work_s"),
        COSTS,
    ),
    "contributions of folded workers are decoded once": Mutation(
        "testbed.simulation.node:CodingCore.take_copies", edit("copies * work_s", "work_s"), COSTS
    ),
    "a path that loses every packet is up": Mutation(
        "testbed.simulation.paths:SitePath.refresh", edit("link.passes for", "link.up for"), LOST_LINKS
    ),
    "no node is lost behind a link that loses every packet": Mutation(
        "testbed.plan.silence:outages", edit("value >= 1)", "value > 1)"), LOST_LINKS
    ),
    "timeouts after random losses take no time": Mutation(
        "testbed.simulation.tcp_model:TcpModel.rate_limit", edit(" + waiting_s", ""), TCP
    ),
    "BBR repairs random losses at once": Mutation(
        "testbed.simulation.tcp:TcpConnection._repair_s", edit("return self.rtt_s *", "return 0.0 *"), TCP
    ),
    "heavy losses are not told": Mutation(
        "testbed.simulation.validity:validity_warnings",
        edit("if loss > HEAVY_LOSS * (1 + 1e-9):", "if False:"),
        VALIDITY,
    ),
    "workers of several servers are folded": Mutation(
        "testbed.simulation.fold:foldable", edit("len(worker.parents) <= 1", "True"), FOLD
    ),
    "flow classes of before a checkpoint are kept": Mutation(
        "testbed.simulation.flows:FlowNetwork.begin_anew", always(None), CHECKPOINTS
    ),
    "links do not count datagrams": Mutation("testbed.simulation.paths:WanLink.count_taken", always(None), BACKGROUND),
    "beside datagrams the narrowest link stays the same": Mutation(
        "testbed.simulation.link_monitor:LinkMonitor._take", edit("path.refresh()", "pass"), BACKGROUND
    ),
    "datagrams that a link drops get to the next one": Mutation(
        "testbed.simulation.paths:WanLink.passing_share", always(1.0), BACKGROUND
    ),
    "a connection's weight is that of its first round trip": Mutation(
        "testbed.simulation.flows:FlowNetwork.set_weight", always(None), TCP
    ),
    "packets lost on the way are not counted": Mutation(
        "testbed.simulation.link_monitor:LinkMonitor.sample",
        edit(" + carried.lost_packets", ""),
        ("tests/simulation/packets/test_network.py",),
    ),
    "a predicted link is slower than an emulated one can be": Mutation(
        "testbed.simulation.paths:PathTable.made_bps",
        edit("self._emulated and rate_bps > 0", "False"),
        ("tests/simulation/packets/test_network.py",),
    ),
    "links of a run that goes on are sampled from 0 on": Mutation(
        "testbed.simulation.link_monitor:LinkMonitor.start_sampling",
        edit("if from_s > self._clock.now:", "if False:"),
        CHECKPOINTS,
    ),
    "rows of costs that nothing looks up are not told": Mutation("testbed.plan.warnings:_costs", always(()), COSTS),
    "flows have no caps": Mutation("testbed.simulation.flows:FlowNetwork.set_cap", always(None), FLOWS),
    "links keep their first capacity": Mutation(
        "testbed.simulation.flows:FlowNetwork.set_capacity", always(None), FLOWS
    ),
    "several flows of a class count as one": Mutation(
        "testbed.simulation.flows:FlowNetwork.start", edit("flow_class.flows += flows", "flow_class.flows += 1"), FLOWS
    ),
    "connections are set up at once": Mutation(
        "testbed.simulation.tcp:TcpConnection._set_up", edit("self._model.setup_round_trips * self.rtt_s", "0.0"), TCP
    ),
    "connections are set up over paths that are down": Mutation(
        "testbed.simulation.outage:set_up", edit("if path.up and path.acknowledged:", "if True:"), TCP
    ),
    "what is urgent overtakes what the kernel has taken": Mutation(
        "testbed.simulation.send_queue:SimulatedSendQueue.take", always(None), TCP
    ),
    "all congestion controls share alike": Mutation("testbed.simulation.tcp_model:TcpModel.weight", always(1.0), TCP),
    "loss does not limit TCP": Mutation(
        "testbed.simulation.tcp_model:TcpModel.rate_limit", edit("if loss <= 0:", "if True:"), TCP
    ),
    "TCP never restarts after idle": Mutation(
        "testbed.simulation.congestion_window:CongestionWindow.after_idle",
        edit("if model.slow_start_after_idle:", "if False:"),
        TCP,
    ),
    "messages ignore their priority": Mutation(
        "testbed.simulation.send_queue:SimulatedSendQueue.push", edit("(-priority, ", "(0, "), TCP
    ),
    "a path is found again at once": Mutation(
        "testbed.simulation.outage:Timers.found_s", edit("while at_s < up_s:", "while False:"), TCP
    ),
    "no sender misses acknowledgements": Mutation(
        "testbed.simulation.outage:SenderOutage.noticed",
        edit("(self.silent or now >= self.timers.expires_s)", "self.silent"),
        TCP,
    ),
    "messages that a pause has held overtake each other": Mutation(
        "testbed.simulation.inbox:SimulatedInbox._hand_over_held", edit("popleft()", "pop()"), INBOX
    ),
    "a machine has cores without end": Mutation(
        "testbed.simulation.host:HostModel._dispatch", edit("self._idle_cores -= 1", "pass"), HOST
    ),
    "packets cost a machine nothing": Mutation("testbed.simulation.host:HostModel.forwarding_s", always(0.0), HOST),
    "best effort loses nothing": Mutation(
        "testbed.simulation.best_effort:FlowCarrier._on_served", edit("self._path.loss <= 0", "True"), BEST
    ),
    "best effort queues have no end": Mutation(
        "testbed.simulation.best_effort:FlowCarrier.carry", edit("if queued_bytes and", "if False and"), BEST
    ),
    "best effort is not paced": Mutation(
        "testbed.simulation.best_effort:BestEffort._pump", edit("self._clock.now < self._free_s", "False"), BEST
    ),
    "frames on a LAN without a delay arrive within the call that sends them": Mutation(
        "testbed.simulation.packets.link:PacketPath.send", edit(" or not self._links", ""), LAN
    ),
    "a port passes all at once": Mutation(
        "testbed.simulation.packets.link:PacketPort.leaves_s", edit("max(now_s, self._empty_s)", "now_s"), LAN
    ),
    "a node's frames never wait at its port": Mutation(
        "testbed.simulation.packets.link:HostQueue.is_full", always(False), LAN
    ),
    "connections write in step": Mutation("testbed.simulation.packets.connection:_WRITE_S", instead(0.0), LAN),
    "short transfers are believed": Mutation("testbed.simulation.validity:LONG_FLOW", instead(0.0), VALIDITY),
    "a queue takes every burst": Mutation(
        "testbed.simulation.drop_tail:DropTailQueue._settle", edit("burst_bytes > room_bytes", "False"), DROP_TAIL
    ),
    "what waits in a queue takes no room in it": Mutation(
        "testbed.simulation.drop_tail:DropTailQueue._settle", edit("room_bytes -= sum", "sum"), DROP_TAIL
    ),
    "a window opens at once after a loss": Mutation(
        "testbed.simulation.congestion_window:CongestionWindow._recover",
        edit("max(self.size_bytes, min", "max(2 * self._peak_bytes, min"),
        ("tests/simulation/test_congestion_window.py",),
    ),
    "a change of the path forgets losses": Mutation(
        "testbed.simulation.congestion_window:CongestionWindow.path_changed",
        edit("if self._repair_bytes == math.inf and not self._loss:", "if True:"),
        ("tests/simulation/test_congestion_window.py",),
    ),
    "random losses that begin take no time to show": Mutation(
        "testbed.simulation.congestion_window:CongestionWindow.path_loses",
        edit("self.open = self.size_bytes <= least_bytes", "self.open = True"),
        ("tests/simulation/test_random_losses.py",),
    ),
    "a window is whole again when random losses end": Mutation(
        "testbed.simulation.congestion_window:CongestionWindow._grow_from",
        edit("self._epoch_s = now", "self._epoch_s = -1e3"),
        ("tests/simulation/test_random_losses.py",),
    ),
    "an open window grows no more": Mutation(
        "testbed.simulation.congestion_window:CongestionWindow._grow_open",
        edit("while left_bytes > 0:", "while False:"),
        ("tests/simulation/test_congestion_window.py",),
    ),
    "what the queue has drained counts as waiting there": Mutation(
        "testbed.simulation.tcp:TcpConnection.queued_flight_bytes",
        edit("left_bytes, window_bytes - self._lately_bytes()", "left_bytes + self._lately_bytes(), window_bytes"),
        DROP_TAIL,
    ),
    "bursts wait before the narrowest link alone": Mutation(
        "testbed.simulation.tcp:TcpConnection._burst_queues",
        edit("return tuple(found)", "return tuple(found[-1:])"),
        DROP_TAIL,
    ),
    "lost ends of messages are found at once": Mutation(
        "testbed.simulation.congestion_window:repair_of",
        edit("wait_s = rtt_s + drain_s + (", "wait_s = rtt_s + 0 * ("),
        DROP_TAIL,
    ),
    "events of parts of a step do not name the part": Mutation(
        "testbed.simulation.recorder:VirtualRecorder.computed",
        edit("work.part or msgspec.UNSET", "msgspec.UNSET"),
        ("tests/simulation/test_run.py",),
    ),
    "the end of a run looks at all its objects": Mutation(
        "testbed.garbage:relaxed_garbage_collection",
        edit("gc.freeze()", "pass"),
        ("tests/units/test_garbage.py",),
    ),
    "real mathematics is folded": Mutation("testbed.simulation.fold:foldable", always(True), FOLD),
    "deadlocks are not found": Mutation(
        "testbed.simulation.run:Simulation._look_for_stall", always(None), ("tests/simulation/test_run.py",)
    ),
    "a rate of 0 leaves a simulated link up": Mutation(
        "testbed.simulation.link_monitor:LinkMonitor._apply",
        edit(
            "self._paths.made_bps(value) if",
            "self._paths.made_bps(value or link.rate_bps) if",
        ),
        ("tests/simulation/test_background.py",),
    ),
    "the WAN's background traffic is absent": Mutation(
        "testbed.simulation.link_monitor:LinkMonitor.start_background",
        always(None),
        ("tests/simulation/test_background.py",),
    ),
    "links of packets have no bucket": Mutation(
        "testbed.simulation.packets.link:PacketLink._send", edit("now - self._burst_s", "now"), PACKETS
    ),
    "queues of packets are endless": Mutation(
        "testbed.simulation.packets.link:PacketLink.arrive", edit("<= self._queue_bytes", "< 10**12"), PACKETS
    ),
    "packets overtake when a delay falls": Mutation(
        "testbed.simulation.packets.link:PacketLink._send",
        edit("max(self._last_arrival_s, now + self._delay_s)", "now + self._delay_s"),
        PACKETS,
    ),
    "every segment is acknowledged at once": Mutation(
        "testbed.simulation.packets.receiver:TcpReceiver._send_after",
        edit("self._clock.now + delay_s", "self._clock.now"),
        PACKETS,
    ),
    "segments beyond a gap are never lost": Mutation(
        "testbed.simulation.packets.scoreboard:Scoreboard.find_lost", always(float("inf")), PACKETS
    ),
    "a lost end is not probed for": Mutation(
        "testbed.simulation.packets.sender:TcpSender._probe", always(None), PACKETS
    ),
    "a loss does not shrink the window": Mutation(
        "testbed.simulation.packets.congestion:Cubic.reduced", edit("int(of.window * _BETA)", "of.window"), PACKETS
    ),
    "timeouts that were spurious are not undone": Mutation(
        "testbed.simulation.packets.sender:TcpSender._undo", always(None), PACKETS
    ),
    "slow start does not double the window": Mutation(
        "testbed.simulation.packets.congestion:Reno.acknowledged", edit("before + segments", "before + 1"), PACKETS
    ),
    "nothing waits at a host's port": Mutation(
        "testbed.simulation.packets.sender:TcpSender._host_is_full", always(False), PACKETS
    ),
    "recovery sends all at once": Mutation(
        "testbed.simulation.packets.sender:TcpSender._reduce",
        edit("max(send, 0 if self._resent else 1)", "1000"),
        PACKETS,
    ),
    "the socket takes all that there is": Mutation(
        "testbed.simulation.packets.connection:PacketConnection._fill", edit("self._limit_bytes", "10**12"), PACKETS
    ),
    "a simulated process takes one message at a time": Mutation(
        "testbed.simulation.send_queue:SimulatedSendQueue.take_batch", always(None), PACKETS
    ),
    "a simulated socket fills no buffer beyond its limit": Mutation(
        "testbed.simulation.packets.connection:_BUFFER_BYTES", instead(1448), PACKETS
    ),
    "rate samples ignore how long segments took to be sent": Mutation(
        "testbed.simulation.packets.delivery_rate:DeliveryRate.sample",
        edit("max(self._send_s, now_s - state.delivered_s)", "self._send_s"),
        BBR,
    ),
    "a program that pauses slows BBR down": Mutation(
        "testbed.simulation.packets.delivery_rate:DeliveryRate.limit", always(None), BBR
    ),
    "BBR's bursts follow one another at once": Mutation(
        "testbed.simulation.packets.paced_sender:PacedSender._is_paced", always(False), BBR
    ),
    "BBR never sees the path full": Mutation(
        "testbed.simulation.packets.bbr:Bbr._look_for_full_path", always(None), BBR
    ),
    "BBR does not drain its queue": Mutation("testbed.simulation.packets.bbr:_DRAIN_GAIN", instead(1.0), BBR),
    "BBR never looks for the least round-trip time": Mutation(
        "testbed.simulation.packets.bbr:_RTT_KEPT_S", instead(1e9), BBR
    ),
    "a loss takes from BBR's window for ever": Mutation(
        "testbed.simulation.packets.bbr:Bbr._set_window", edit("max(window, self._prior_window)", "window"), BBR
    ),
    "BBR takes no notice of a policer": Mutation("testbed.simulation.packets.bbr:Policer._end", always(None), BBR),
    "a link that is down holds packets back": Mutation(
        "testbed.simulation.packets.network:PacketNetwork.changed",
        edit("if link.up else 1.0", ""),
        ("tests/simulation/packets/test_network.py",),
    ),
    "a killed process sends all that it has queued": Mutation(
        "testbed.simulation.run:Simulation.kill",
        edit("self._worlds[node].outbox.stop(math.inf)", "pass"),
        ("tests/simulation/test_best_effort.py",),
    ),
    "a stopped process goes on sending": Mutation(
        "testbed.simulation.run:Simulation.pause",
        edit("world.outbox.stop(until_s)", "pass"),
        ("tests/simulation/test_best_effort.py",),
    ),
    "a stopped process sends datagrams": Mutation(
        "testbed.simulation.best_effort:BestEffort.stop",
        always(None),
        ("tests/simulation/test_best_effort.py",),
    ),
    "what a stopped process was sending is lost": Mutation(
        "testbed.simulation.tcp:TcpConnection._keep_rest",
        edit("self._rest, self._item = (rest_bytes, self._item), None", "pass"),
        ("tests/simulation/test_tcp.py",),
    ),
    "what waits for a lost node goes on waiting": Mutation(
        "testbed.simulation.outbox:SimulatedOutbox.drop", always(None), LOST
    ),
    "a loss is heard over links that are down": Mutation(
        "testbed.simulation.faults:SimulatedFaults._unheard_s", always(0.0), LOST
    ),
    "a LAN has a queue without an end": Mutation(
        "testbed.simulation.tcp:TcpConnection._taken_bytes", edit(' and self._path.tier == "wan"', ""), TCP
    ),
    "the socket takes more of a process that is stopped": Mutation(
        "testbed.simulation.packets.connection:PacketConnection.stop",
        always(None),
        ("tests/simulation/packets/test_connection.py",),
    ),
}
