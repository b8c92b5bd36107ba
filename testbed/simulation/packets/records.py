"""The records of a packet network; see ``machine.record``."""

from __future__ import annotations

from typing import Any

import msgspec

from testbed.simulation.machine.record import NONE, Record, Timeline


class Packet(Record):
    """A frame on its way.

    hop      index (in ``Network.hops``) of the link that it takes next; ``last_hop``: of the first one beyond its way
    in_port  the port of its receiver
    kind     what its receiver does with it: see ``packets``
    owner    the connection, or the best-effort message, that it belongs to
    segment  DATA: index of the segment
    number   DATA: the segment's number. ACKNOWLEDGEMENT: of the first segment that is missing. LAN_FRAME: payload bytes
    beyond   ACKNOWLEDGEMENT: how many segments have arrived behind gaps until now, in the order of ``beyond_head``
    time_s   DATA: when it was sent. ACKNOWLEDGEMENT: when the first segment that it acknowledges in order was sent
             (RFC 7323, 4.3); infinite: there is none
    stamp_s  ACKNOWLEDGEMENT: when it was sent. DATA: that of the latest one that the sender had taken
    edge_bytes  ACKNOWLEDGEMENT: up to which byte of the stream may be sent (the window)
    flag     DATA: nothing more was to be sent behind it (TCP's PSH). ACKNOWLEDGEMENT: it answers a duplicate
    """

    size_bytes: int = 0
    hop: int = 0
    last_hop: int = 0
    in_port: int = 0
    channel: int = 0
    kind: int = 0
    owner: int = 0
    segment: int = 0
    number: int = 0
    beyond: int = 0
    time_s: float = 0.0
    stamp_s: float = 0.0
    edge_bytes: int = 0
    flag: bool = False
    next: int = 0


class Segment(Record):
    """A segment from its first sending until it is acknowledged in order.

    number      in the order of the stream
    size_bytes  of payload
    pushed      nothing more was to be sent behind it (TCP's PSH)
    sent_s      when it was last sent
    sacked      acknowledged beyond a gap
    lost        marked as lost, and not acknowledged
    again       its retransmission is under way
    resent      it has been sent more than once
    arrived     its receiver has it, and misses one before
    in_order    it is in the list by the time of sending: ``earlier``, ``later``
    beyond      the segment that arrived behind a gap after this one did

    What was delivered when it was sent (``delivery_rate``): ``delivered``, when the last one of these was, when the
    first of those under way was sent, and whether nothing followed.
    """

    number: int = 0
    size_bytes: int = 0
    pushed: bool = False
    sent_s: float = 0.0
    sacked: bool = False
    lost: bool = False
    again: bool = False
    resent: bool = False
    arrived: bool = False
    in_order: bool = False
    earlier: int = 0
    later: int = 0
    beyond: int = 0
    delivered: int = 0
    delivered_s: float = 0.0
    first_sent_s: float = 0.0
    application_limited: bool = False
    next: int = 0


class Frame(Record):
    """A frame of a connection that waits at its node's port, which it leaves at ``leaves_s``."""

    leaves_s: float = 0.0
    size_bytes: int = 0
    next: int = 0


class Queue(Record):
    """The queue of one channel before a link: its packets, in order."""

    head: int = 0
    tail: int = 0
    size_bytes: int = 0


class Port(Record):
    """The port of a node on its LAN, in one direction, with the bucket of ``links``."""

    seconds_per_byte: float = 0.0
    burst_s: float = 0.0
    empty_s: float = 0.0


class Hop(Record):
    """One link of a path."""

    link: int = 0


class Path(Record):
    """The way of packets from one node to another. A LAN has no hops."""

    out_port: int = 0
    in_port: int = 0
    lan_delay_s: float = 0.0
    first_hop: int = 0
    last_hop: int = 0  # the first one beyond


class Link(Record):
    """One direction of a WAN link; see ``links``.

    losses     share of packets that are lost on the way
    generator  of its losses: index of the first of its words
    timer_s    of the next look at the queues
    sent_bytes, dropped_packets, lost_packets  of frames that have left; by full queues; on the way
    """

    seconds_per_byte: float = 0.0
    burst_s: float = 0.0
    delay_s: float = 0.0
    losses: float = 0.0
    limit_bytes: int = 0  # of each queue
    first_queue: int = 0
    queues: int = 0
    generator: int = 0
    empty_s: float = 0.0
    last_arrival_s: float = 0.0
    timer_s: float = 0.0
    backlog_bytes: int = 0
    sent_bytes: int = 0
    dropped_packets: int = 0
    lost_packets: int = 0


class Datagrams(Record):
    """A best-effort message on its way. ``missing``: its datagrams that have not arrived; ``left``: on their way."""

    path: int = 0
    channel: int = 0
    missing: int = 0
    left: int = 0
    next: int = 0


class Connection(Record):
    """One direction between two nodes: socket, sender and receiver. Windows are in segments.

    Its parts begin once, when it has been set up: the fields that they do not set then are 0.
    """

    index: int = 0
    path: int = 0
    back: int = 0
    is_lan: bool = False
    control: int = 0  # congestion control: see ``congestion``
    rtt_s: float = 0.0  # the first one, when it was set up
    # ---- the socket: see ``socket``
    is_open: bool = False
    waiting: int = 0  # messages that have not begun
    left_bytes: int = 0  # of the message that the socket is taking
    buffer_bytes: int = 0  # that fit into its last buffer
    unsent_limit_bytes: float = 0.0
    unsent_bytes: int = 0  # written, and not sent yet
    stopped_until_s: float = 0.0
    is_writing: bool = False
    tells_idle: bool = False  # whether anything is to hear that nothing is left to send
    wakes_afterwards: bool = False  # its timer is to be set when the socket has been filled
    received_bytes: int = 0  # in order
    message_ends_bytes: float = 0.0  # where in the stream the message ends that arrives next; infinite: unknown
    # ---- what waits at the node's port: see ``host_queue``
    frame_head: int = 0
    frame_tail: int = 0
    frames_bytes: int = 0
    waits_for_port: bool = False
    # ---- in a LAN: see ``lan_sender``
    lan_segments: int = 0  # in a frame
    lan_window_bytes: float = 0.0
    grows_unused: bool = False
    under_way_bytes: int = 0
    most_bytes: int = 0  # that have been under way at once
    # ---- the sender: see ``sender``
    window: int = 0
    threshold: float = 0.0  # at which slow start ends
    first_window: int = 0
    setup_segments: int = 0
    limit: float = 0.0  # of segments that are not acknowledged in order
    restarts: bool = False  # slow start after idle time
    last_sent_s: float = 0.0
    stamp_s: float = 0.0  # when the latest acknowledgement was sent that it has taken
    sent_bytes: int = 0  # of the stream
    edge_bytes: int = 0  # up to which the receiver's window lets it send
    recovery: int = 0
    high: int = 0  # recovery ends when all before is acknowledged
    prior_window: int = 0
    prior_threshold: float = 0.0
    recovered: int = 0
    resent: int = 0
    noted_s: float = 0.0  # when the present loss was noted
    probe_ends: int = 0  # of a tail loss probe; -1: none is under way
    probe_resent: bool = False
    is_limited: bool = False
    most_out: int = 0
    limited_until: int = 0
    window_used: int = 0
    window_used_s: float = 0.0
    timer_s: float = 0.0
    reordering_at_s: float = 0.0
    wakes_s: float = 0.0
    # ---- round-trip times: see ``timers``
    smoothed_s: float = 0.0
    least_s: float = 0.0
    deviation_s: float = 0.0
    variation_s: float = 0.0
    largest_s: float = 0.0
    rtt_round_ends: int = 0
    backoff: int = 0
    # ---- what is under way: see ``scoreboard``
    first: int = 0  # number of the first segment that is not acknowledged
    following: int = 0  # of the next new one
    head: int = 0  # these segments, by number
    tail: int = 0
    earliest: int = 0  # by the time of sending: those of which is to be found out whether they are lost
    latest: int = 0
    sacked: int = 0
    lost: int = 0
    again: int = 0
    marked: int = 0  # how often one was marked as lost
    arrived_sent_s: float = 0.0  # of those that have arrived, the one sent last: when, which, and its round-trip time
    arrived_number: int = 0
    arrived_rtt_s: float = 0.0
    look_from: int = 0  # no segment before is to be sent again
    beyond_head: int = 0  # segments that arrived behind gaps, in that order, of which the sender has not been told
    beyond_tail: int = 0
    beyond_told: int = 0  # how many it has been told of
    # ---- the receiver: see ``receiver``
    expected: int = 0  # number of the next segment
    gaps: int = 0  # segments that have arrived, and miss one before
    arrived_beyond: int = 0  # until now
    farthest: int = 0  # number of the last one of these
    owes: bool = False  # something has arrived that is not acknowledged
    at_once: bool = False  # a gap has been filled
    chance: int = 0  # below 65 536: which segments its program reads soon
    quick: int = 0  # acknowledgements that are not delayed
    ping_pong: bool = False
    delay_ticks: int = 0
    heard_s: float = 0.0  # the last segment in order
    arrived_s: float = 0.0  # the last one
    told_bytes: int = 0  # of ``received_bytes``, when it last acknowledged
    unread_bytes: int = 0  # that have arrived at this instant
    pushes: int = 0  # since it last acknowledged: 0, 1, more
    echo_s: float = 0.0  # when the first segment was sent that has not been acknowledged; infinite: there is none
    of_gap: int = 0  # acknowledgements sent since the gap moved
    gathered: int = 0
    gathered_at: int = 0
    delay_timer_s: float = 0.0
    # ---- its window: see ``receive_window``
    most_buffer_bytes: int = 0  # memory, as the next one
    receive_buffer_bytes: int = 0
    window_share: int = 0  # of this memory that bytes have, in 256ths
    window_clamp_bytes: int = 0  # that would fit
    window_goal_bytes: int = 0
    window_bytes: int = 0  # announced last
    full_bytes: int = 0  # of a full segment
    last_small_bytes: int = 0  # of the last one that was less; 0: it was full
    receive_rtt_s: float = 0.0  # 0: not known
    stamp_heard_s: float = 0.0
    window_timed_from_s: float = 0.0
    window_timed_until_bytes: int = 0
    space_bytes: int = 0  # the most that was read in a round-trip time
    space_from_s: float = 0.0
    space_from_bytes: int = 0
    # ---- Reno and CUBIC: see ``congestion``
    grown: int = 0  # acknowledged since the window grew
    has_epoch: bool = False
    epoch_s: float = 0.0
    peak: int = 0
    last_window: int = 0
    origin: int = 0
    reno_acknowledged: int = 0
    reno_window: int = 0
    k_s: float = 0.0
    updated_s: float = 0.0
    cubic_count: int = 0
    has_found_end: bool = False  # HyStart has ended slow start
    delay_s: float = 0.0  # the least
    round_least_s: float = 0.0
    round_ends: int = 0
    round_begin_s: float = 0.0
    train_s: float = 0.0
    samples: int = 0
    # ---- delivery rate: see ``delivery_rate``
    delivered: int = 0  # all segments that have arrived
    delivered_s: float = 0.0
    first_sent_s: float = 0.0
    application_limited_until: int = 0
    has_sample: bool = False  # of the present acknowledgement: the segment that was sent last, and what it noted
    sample_sent_s: float = 0.0
    sample_number: int = 0
    sample_delivered: int = 0
    sample_delivered_s: float = 0.0
    sample_limited: bool = False
    send_s: float = 0.0
    # ---- BBR: see ``bbr``
    generator: int = 0  # of its cycles
    mode: int = 0
    pacing_gain: float = 0.0
    pacing_bytes_per_s: float = 0.0
    best_round: int = 0
    best_rate: float = 0.0
    second_round: int = 0
    second_rate: float = 0.0
    third_round: int = 0
    third_rate: float = 0.0
    path_rtt_s: float = 0.0
    path_rtt_seen_s: float = 0.0
    rounds: int = 0
    bbr_round_ends: int = 0
    round_starts: bool = False
    full_rate: float = 0.0
    full_rounds: int = 0
    path_is_full: bool = False
    phase: int = 0
    phase_s: float = 0.0
    probe_rtt_ends_s: float = 0.0
    probe_round_done: bool = False
    begins_again: bool = False  # sending begins after nothing was under way
    kept_window: int = 0
    repairs: bool = False
    conserves: bool = False
    extra_epoch_s: float = 0.0
    extra_segments: int = 0
    extra: int = 0
    former_extra: int = 0
    extra_rounds: int = 0
    policed_rate: float = 0.0  # 0: there is no policer
    policed_before: float = 0.0
    policed_samples: bool = False
    policed_rounds: int = 0
    policed_s: float = 0.0
    policed_delivered: int = 0
    policed_lost: int = 0
    lost_in_all: int = 0
    # ---- pacing
    pacer_segments: int = 0
    pacer_s: float = 0.0  # when the next burst may leave
    waits_for_pacer: bool = False


class Network(Timeline):
    """Everything. ``reserve``: packets, segments and frames that one event may need, too."""

    free_packet: int = NONE  # the first one of those that are free, and how many there are
    free_packets: int = 0
    free_segment: int = NONE
    free_segments: int = 0
    free_frame: int = NONE
    free_frames: int = 0
    ended_datagrams: int = NONE  # messages of which no datagram is on its way any more
    packet_list: list[Packet] = msgspec.field(default_factory=list)
    segment_list: list[Segment] = msgspec.field(default_factory=list)
    frame_list: list[Frame] = msgspec.field(default_factory=list)
    datagrams_list: list[Datagrams] = msgspec.field(default_factory=list)
    queue_list: list[Queue] = msgspec.field(default_factory=list)
    port_list: list[Port] = msgspec.field(default_factory=list)
    hop_list: list[Hop] = msgspec.field(default_factory=list)
    connection_list: list[Connection] = msgspec.field(default_factory=list)
    path_list: list[Path] = msgspec.field(default_factory=list)
    link_list: list[Link] = msgspec.field(default_factory=list)
    word_list: list[Any] = msgspec.field(default_factory=list)
