"""The records of a packet network; see ``machine.record``."""

from __future__ import annotations

from typing import Any

import msgspec

from testbed.simulation.machine.record import NONE, Record, Timeline


class Packet(Record):
    """A frame on its way.

    hop      index in ``Network.hop_list`` of the next link; ``last_hop``: index after the last link of the path
    in_port  the receiver's port
    kind     DATA, ACKNOWLEDGEMENT, LAN_FRAME or DATAGRAM: see ``links``
    owner    the connection or best-effort message that the frame belongs to
    segment  DATA: index of the segment
    number   DATA: the segment's number. ACKNOWLEDGEMENT: number of the first missing segment. LAN_FRAME: payload bytes
    beyond   ACKNOWLEDGEMENT: how many segments have arrived behind gaps so far, in the order of ``beyond_head``
    time_s   DATA: when it was sent. ACKNOWLEDGEMENT: sending time of the first segment that it newly acknowledges in
             order (RFC 7323, 4.3); infinite: there is none
    stamp_s  ACKNOWLEDGEMENT: when it was sent. DATA: ``stamp_s`` of the latest acknowledgement that its sender has
    edge_bytes  ACKNOWLEDGEMENT: end of the receive window, as a position in the stream
    flag     DATA: the segment is pushed (TCP's PSH). ACKNOWLEDGEMENT: it answers a duplicate segment
    next     the next packet in a queue, or in the list of free packets
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
    """A segment, from when it is first sent until it is acknowledged in order.

    number      its position in the stream, in segments
    size_bytes  bytes of payload
    pushed      it has TCP's PSH flag
    sent_s      when it was last sent
    sacked      it is acknowledged, but an earlier segment is not
    lost        marked as lost, and not acknowledged
    again       its retransmission is under way
    resent      it has been sent more than once
    arrived     it arrived while an earlier segment was missing
    in_order    it is in the list ordered by the time of sending; ``earlier``, ``later``: its neighbours there
    beyond      the next segment that arrived behind a gap
    next        the next segment of the stream, or of the list of free segments

    The sender's state when it was last sent (``delivery_rate``), kept for BBR:

    delivered, delivered_s  how many segments had been delivered, and when the last one was
    first_sent_s            when the first segment of those under way was sent
    application_limited     whether the program had left nothing to send
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
    """A frame of a connection that waits at its node's port until ``leaves_s``."""

    leaves_s: float = 0.0
    size_bytes: int = 0
    next: int = 0


class Queue(Record):
    """The queue of one channel before a link: its packets, in order."""

    head: int = 0
    tail: int = 0
    size_bytes: int = 0


class Port(Record):
    """The port of a node on its LAN, in one direction. Its rate is limited by a token bucket, as in ``links``."""

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
    last_hop: int = 0  # index after the last hop


class Link(Record):
    """One direction of a WAN link; see ``links``.

    losses     share of packets that are lost on the way, after they have left
    generator  random generator of these losses: index of its first word
    empty_s    when the token bucket is empty
    timer_s    when the link next looks at its queues
    backlog_bytes    bytes in all queues
    sent_bytes       bytes of the frames that have left, those lost on the way included
    dropped_packets  packets that a full queue dropped
    lost_packets     packets lost on the way
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
    """A best-effort message on its way.

    missing  how many of its datagrams have not arrived
    left     how many of its datagrams may still arrive
    """

    path: int = 0
    channel: int = 0
    missing: int = 0
    left: int = 0
    next: int = 0


class Connection(Record):
    """One direction between two nodes: socket, sender and receiver. Windows are in segments.

    ``open_socket`` begins these parts once, after the handshake; the fields that they do not set then are 0.
    """

    index: int = 0
    path: int = 0
    back: int = 0
    is_lan: bool = False
    control: int = 0  # congestion control: see ``congestion``
    rtt_s: float = 0.0  # first round-trip time of the handshake
    # ---- the socket: see ``socket``
    is_open: bool = False
    waiting: int = 0  # messages of which the socket has taken nothing
    left_bytes: int = 0  # bytes of the present message that the socket has not taken yet
    buffer_bytes: int = 0  # free bytes in the socket's last buffer
    unsent_limit_bytes: float = 0.0
    unsent_bytes: int = 0  # written, but not sent yet
    stopped_until_s: float = 0.0
    is_writing: bool = False
    tells_idle: bool = False  # whether to return IS_IDLE when nothing is left to send
    wakes_afterwards: bool = False  # set the sender's timer after filling the socket
    received_bytes: int = 0  # received in order
    message_ends_bytes: float = 0.0  # end of the next message to arrive, as a position in the stream; infinite: unknown
    # ---- frames that wait at the node's port: see ``host_queue``
    frame_head: int = 0
    frame_tail: int = 0
    frames_bytes: int = 0
    waits_for_port: bool = False
    # ---- in a LAN: see ``lan_sender``
    lan_segments: int = 0  # segments in a full frame
    lan_window_bytes: float = 0.0
    grows_unused: bool = False
    under_way_bytes: int = 0
    most_bytes: int = 0  # largest ``under_way_bytes`` so far
    # ---- the sender: see ``sender``
    window: int = 0
    threshold: float = 0.0  # slow start ends at this window
    first_window: int = 0
    setup_segments: int = 0
    limit: float = 0.0  # most segments that may be out, that is not acknowledged in order
    restarts: bool = False  # slow start after idle time
    last_sent_s: float = 0.0
    stamp_s: float = 0.0  # sending time of the latest acknowledgement taken
    sent_bytes: int = 0  # bytes of the stream sent so far
    edge_bytes: int = 0  # end of the receiver's window, as a position in the stream
    recovery: int = 0
    high: int = 0  # recovery ends when all segments before this number are acknowledged
    prior_window: int = 0
    prior_threshold: float = 0.0
    recovered: int = 0
    resent: int = 0
    noted_s: float = 0.0  # when the present loss was noted
    probe_ends: int = 0  # ``following`` after a tail loss probe was sent; -1: no probe is under way
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
    # ---- segments under way: see ``scoreboard``
    first: int = 0  # number of the first segment that is not acknowledged in order
    following: int = 0  # number of the next new segment
    head: int = 0  # list of the segments from ``first`` on, by number
    tail: int = 0
    earliest: int = 0  # list by the time of sending: segments that may turn out to be lost
    latest: int = 0
    sacked: int = 0
    lost: int = 0
    again: int = 0
    marked: int = 0  # how often a segment was marked as lost
    arrived_sent_s: float = 0.0  # of the segment sent last among those arrived: sending time, number, round-trip time
    arrived_number: int = 0
    arrived_rtt_s: float = 0.0
    look_from: int = 0  # no segment before this one waits to be retransmitted
    beyond_head: int = 0  # list of segments that arrived behind gaps, in that order, not yet reported to the sender
    beyond_tail: int = 0
    beyond_told: int = 0  # how many have been reported to the sender
    # ---- the receiver: see ``receiver``
    expected: int = 0  # number of the next segment in order
    gaps: int = 0  # segments that have arrived while an earlier one is missing
    arrived_beyond: int = 0  # segments that have arrived behind gaps so far
    farthest: int = 0  # largest number of a segment that arrived behind a gap
    owes: bool = False  # a segment has arrived that is not acknowledged yet
    at_once: bool = False  # acknowledge at once, as all gaps have been filled
    chance: int = 0  # below 65 536: start of the sequence that says which segments the program reads soon
    quick: int = 0  # how many acknowledgements are still sent without delay
    ping_pong: bool = False
    delay_ticks: int = 0
    heard_s: float = 0.0  # when the last segment in order arrived
    arrived_s: float = 0.0  # when the last segment arrived
    told_bytes: int = 0  # ``received_bytes`` at the last acknowledgement
    unread_bytes: int = 0  # bytes received in order that the program has not read
    pushes: int = 0  # since the last acknowledgement: 0, _PUSHED or _PUSHED_TWICE (``receive_window``)
    echo_s: float = 0.0  # when the first segment not yet acknowledged was sent; infinite: there is none
    of_gap: int = 0  # acknowledgements sent for the present gap
    gathered: int = 0
    gathered_at: int = 0
    delay_timer_s: float = 0.0
    # ---- the receive window: see ``receive_window``
    most_buffer_bytes: int = 0  # limit of ``receive_buffer_bytes``
    receive_buffer_bytes: int = 0  # memory of the receive buffer
    window_share: int = 0  # share of this memory that holds payload, in 256ths
    window_clamp_bytes: int = 0  # payload that the buffer can hold
    window_goal_bytes: int = 0
    window_bytes: int = 0  # last window announced
    full_bytes: int = 0  # payload of a full segment
    last_small_bytes: int = 0  # payload of the last segment if it was not full; otherwise 0
    receive_rtt_s: float = 0.0  # 0: unknown
    stamp_heard_s: float = 0.0
    window_timed_from_s: float = 0.0
    window_timed_until_bytes: int = 0
    space_bytes: int = 0  # most bytes that the program has read in a round-trip time
    space_from_s: float = 0.0
    space_from_bytes: int = 0
    # ---- Reno and CUBIC: see ``congestion``
    grown: int = 0  # segments acknowledged since the window last grew
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
    delay_s: float = 0.0  # least round-trip time
    round_least_s: float = 0.0
    round_ends: int = 0
    round_begin_s: float = 0.0
    train_s: float = 0.0
    samples: int = 0
    # ---- delivery rate: see ``delivery_rate``
    delivered: int = 0  # segments acknowledged so far, in order or not
    delivered_s: float = 0.0
    first_sent_s: float = 0.0
    application_limited_until: int = 0
    # of the segments that the present acknowledgement newly acknowledges: the one sent last, and what it had noted
    has_sample: bool = False
    sample_sent_s: float = 0.0
    sample_number: int = 0
    sample_delivered: int = 0
    sample_delivered_s: float = 0.0
    sample_limited: bool = False
    send_s: float = 0.0
    # ---- BBR: see ``bbr``
    generator: int = 0  # random generator that draws the first phase of a cycle
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
    begins_again: bool = False  # sending has begun again after nothing was under way
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
    """The state of the whole packet network. ``reserve`` also counts free packets, segments and frames, each."""

    free_packet: int = NONE  # head of the list of free packets, and its length
    free_packets: int = 0
    free_segment: int = NONE
    free_segments: int = 0
    free_frame: int = NONE
    free_frames: int = 0
    ended_datagrams: int = NONE  # list of best-effort messages that have no datagram on its way any more
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
