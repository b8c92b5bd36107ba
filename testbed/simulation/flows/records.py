"""The records of a flow network; see ``machine.record``. Sizes are in bytes, rates in bytes per second."""

from __future__ import annotations

import math

import msgspec

from testbed.simulation.machine.record import NONE, Record, Timeline


class Transfer(Record):
    """A message, from its sending to its arrival; or a flow that belongs to no message.

    It is in a heap (``heap``), ordered by ``key`` and then ``number``. Among the messages that wait, ``key`` is minus
    the priority; among the flows of a class, the service at which the flow ends.

    flows        how many equal flows it stands for
    connection   the connection that sends it; -1: none, as it is only a flow
    tells_start  whether to give the notice HAS_STARTED when its first byte leaves
    is_part      it is only the first part of a message, so no message arrives with it
    left, right  its children in the heap; in a list, ``left`` is the next transfer
    """

    size_bytes: float = 0.0
    key: float = 0.0
    number: int = 0
    flows: int = 0
    connection: int = 0
    tells_start: bool = False
    is_part: bool = False
    left: int = 0
    right: int = 0


class FlowClass(Record):
    """Flows that always have the same rate; see ``classes`` and ``solver``.

    Used by the solver:

    first_hop, last_hop  indices of its first hop, and after its last hop
    cap, rate     limit and rate of each of its flows
    served        integral of its rate since it was last idle, until ``updated_s``
    top           service at which its next flow ends; ``ends_s``: when that is; ``place``: in the heap of ends, from 1
    flows, weight number of its flows that the solver knows, and the weight of each
    total, limit  rate and limit of all its flows together, during a solve
    own           least capacity of the links that no other class uses; ``shared``: number of its other links
    mark          stamp of the last solve that visited it; ``linked``: it is in the lists of its links

    Used by ``classes``:

    heap          root of the heap of its flows
    active        number of its flows
    idle          it has had no flow since the solver learned that its last one ended
    dirty         it has changed at this instant
    parked        idle, but still in the lists of its links
    shares        another class may have been active on one of its links since this one became active
    delivered     bytes of flows that have ended; ``started``: sum of the service at the start of the active flows
    watched       the bytes it carries are counted for its links; ``counted``: so many have been
    counts        it is in the list of classes to count; ``counts_next``: the next one there
    """

    first_hop: int = 0
    last_hop: int = 0
    flows: float = 0.0
    weight: float = 0.0
    cap: float = 0.0
    rate: float = 0.0
    served: float = 0.0
    updated_s: float = 0.0
    top: float = 0.0
    ends_s: float = 0.0
    total: float = 0.0
    limit: float = 0.0
    solved_flows: float = 0.0
    solved_cap: float = 0.0
    own: float = 0.0
    mark: int = 0
    shared: int = 0
    place: int = 0
    linked: bool = False
    idle: bool = False
    dirty: bool = False
    parked: bool = False
    shares: bool = False
    watched: bool = False
    counts: bool = False
    counts_next: int = 0
    heap: int = 0
    active: int = 0
    delivered: float = 0.0
    counted: float = 0.0
    started: float = 0.0


class Hop(Record):
    """One link of a class. ``before``, ``after``: the neighbours in the link's list of classes, as their hops."""

    link: int = 0
    flow_class: int = 0
    before: int = 0
    after: int = 0


class Link(Record):
    """A link of the flow network.

    head, count  first hop and length of the list of its active classes
    left, weights, open  capacity left for the classes not yet frozen during a solve, their weights, and their number
    level    the level at which it was last full, when no class shared any other link
    latest   the last class over it that became active
    dirty    its capacity has changed at this instant
    carried  bytes that it had carried at the last count
    first_standing, last_standing  list of connections whose windows keep a queue before it, the earliest first
    """

    capacity: float = 0.0
    left: float = 0.0
    weights: float = 0.0
    level: float = 0.0
    head: int = 0
    count: int = 0
    mark: int = 0
    open: int = 0
    latest: int = 0
    dirty: bool = False
    carried: float = 0.0
    first_standing: int = 0
    last_standing: int = 0


class End(Record):
    """When the next flow of a class ends."""

    at_s: float = 0.0
    flow_class: int = 0


class Level(Record):
    """A level at which the link ``what`` is full, or the class -1 - ``what`` meets its limit."""

    level: float = 0.0
    what: int = 0


class Visit(Record):
    """A class that a solve visits. ``limit``, ``share``: limit and weight of all its flows together."""

    flow_class: int = 0
    limit: float = 0.0
    share: float = 0.0


class Reached(Record):
    """A link that a solve visits."""

    link: int = 0


class Change(Record):
    """A change at this instant: of the class ``what``, or of the link -1 - ``what``."""

    what: int = 0


class Notice(Record):
    """A notice that Python handles at the end of an event: see ``dispatch``."""

    kind: int = 0
    who: int = 0


class Arrival(Record):
    """A flow that ``solver.simulate`` simulates.

    left   its size in bytes; after the simulation, the bytes left
    flows  how many equal flows it stands for
    ended  in the i-th record: the number of the flow that ended as the i-th
    """

    begin_s: float = 0.0
    left: float = 0.0
    flows: float = 0.0
    end_s: float = 0.0
    ended: int = 0


class Path(Record):
    """The properties that all connections between two sites share.

    passing    share of packets that are not lost at random
    is_up      packets get to the other end
    works      packets get to the other end, and acknowledgements get back
    narrowest  the link before which queues stand; -1: there is none
    is_wan     it has WAN links
    """

    delay_s: float = 0.0
    rtt_s: float = 0.0
    passing: float = 0.0
    queue_bytes: float = 0.0
    is_up: bool = False
    works: bool = False
    is_wan: bool = False
    narrowest: int = 0


class Model(Record):
    """Constants of TCP; see ``TcpModel``."""

    goodput: float = 0.0
    segment_bytes: float = 0.0
    initial_window_bytes: float = 0.0
    window_limit_bytes: float = 0.0
    retransmission_floor_s: float = 0.0
    sharing_exponent: float = 0.0
    window_after_loss: float = 0.0
    unsent_limit_bytes: float = 0.0
    slow_start_after_idle: bool = False
    loss_based: bool = False
    is_reno: bool = False


class Pipe(Record):
    """The quantities of a path on which a window depends. ``port``: the rate of the sender's port."""

    capacity: float = 0.0
    rtt_s: float = 0.0
    queue_bytes: float = 0.0
    loss: float = 0.0
    port: float = math.inf


class Connection(Record):
    """One direction between two nodes; its pipe has the same index.

    unlimited      it has no congestion window
    is_open        it has been set up
    sending        the message that is being sent
    rest           the part of a message that a stopped process has not written
    sent_bytes     size of ``sending`` in bytes, without the rest
    arrival_s      latest arrival of a message: TCP keeps the order even when a trace shortens the path
    down_since_s   since when acknowledgements have been missing; infinite: they are not
    """

    index: int = 0
    flow_class: int = 0
    path: int = 0
    model: int = 0
    copies: int = 0
    private_capacity: float = 0.0
    unlimited: bool = False
    is_open: bool = False
    tells_room: bool = False  # whether to give the notice HAS_ROOM when a message has left the queue
    tells_idle: bool = False  # whether to give the notice IS_IDLE when nothing is left to send
    rtt_s: float = 0.0
    sending: int = 0
    rest: int = 0
    sent_bytes: float = 0.0
    stopped_until_s: float = 0.0
    down_since_s: float = 0.0
    arrival_s: float = 0.0
    # ---- messages that have not begun: see ``waiting``
    heap: int = 0
    least_priority: float = 0.0  # least priority of the messages in the heap
    waiting: int = 0
    waiting_bytes: float = 0.0
    taken: int = 0  # number of messages that the kernel has taken; below: the first and the last one
    taken_bytes: float = 0.0
    first_taken: int = 0
    last_taken: int = 0
    # ---- bursts
    burst_bytes: float = 0.0  # a burst lasts from idle to idle
    recent_bytes: float = 0.0  # bytes of bursts separated by less than a round trip
    burst_begin_s: float = 0.0
    idle_since_s: float = 0.0
    queueing_s: float = 0.0  # how long this burst waits behind other connections' queue
    largest_burst_bytes: float = 0.0  # since training began, as the next two
    bursts: int = 0
    pauses: int = 0  # how often nothing was left to send
    standing_at: int = 0  # the link before which this burst has a standing queue
    standing_since_s: float = 0.0
    standing_before: int = 0
    standing_after: int = 0
    # ---- the window: see ``window``
    window_bytes: float = 0.0
    open: bool = False
    network_limited: bool = False
    follows_full: bool = False
    threshold_bytes: float = 0.0
    round_end_s: float = 0.0
    round_base: float = 0.0
    best_rate: float = 0.0
    rate_limit: float = 0.0
    first_limit_bytes: float = 0.0
    most_bytes: float = 0.0
    burst_room_bytes: float = 0.0
    limit: float = 0.0  # rate that path and window allow
    full_bytes: float = 0.0
    timer_s: float = 0.0  # when the event for the end of a round is due


class Network(Timeline):
    """The state of the whole flow network.

    active    number of flows
    sequence  number of the last flow or message
    wake_s    when the next flow ends, if that is scheduled
    wakes     scheduled wake-ups, including stale ones
    parks     whether classes are parked (tests compare both)
    ended     list of transfers that have ended at this instant and are still to be handled
    free      list of transfers that are not used any more
    counts_first, counts_last  list of classes that have carried more bytes than were counted
    stamp, reached, visited, ends, changes  see ``solver``
    notices   number of notices
    """

    active: int = 0
    sequence: int = 0
    wake_s: float = math.inf
    wakes: int = 0
    parks: bool = True
    ended: int = NONE
    free: int = NONE
    counts_first: int = NONE
    counts_last: int = NONE
    stamp: int = 0
    reached: int = 0
    visited: int = 0
    ends: int = 0
    changes: int = 0
    notices: int = 0
    transfer_list: list[Transfer] = msgspec.field(default_factory=list)
    flow_class_list: list[FlowClass] = msgspec.field(default_factory=list)
    hop_list: list[Hop] = msgspec.field(default_factory=list)
    link_list: list[Link] = msgspec.field(default_factory=list)
    end_list: list[End] = msgspec.field(default_factory=list)
    level_list: list[Level] = msgspec.field(default_factory=list)
    visit_list: list[Visit] = msgspec.field(default_factory=list)
    reached_list: list[Reached] = msgspec.field(default_factory=list)
    change_list: list[Change] = msgspec.field(default_factory=list)
    notice_list: list[Notice] = msgspec.field(default_factory=list)
    arrival_list: list[Arrival] = msgspec.field(default_factory=list)
    connection_list: list[Connection] = msgspec.field(default_factory=list)
    path_list: list[Path] = msgspec.field(default_factory=list)
    model_list: list[Model] = msgspec.field(default_factory=list)
    pipe_list: list[Pipe] = msgspec.field(default_factory=list)
