"""The records of a flow network; see ``machine.record``. Sizes are in bytes, rates in bytes per second."""

from __future__ import annotations

import math

import msgspec

from testbed.simulation.machine.record import NONE, Record, Timeline


class Transfer(Record):
    """A message, from its sending to its arrival; or any flow of which only the end matters.

    It lies in a heap (``heap``) by ``key`` and then ``number``: of messages that wait (priority, negative), or of the
    flows of a class (the service at which it ends).

    flows        how many alike it is
    connection   which sends it; -1: none, it is a flow and no more
    tells_start  whether anything is to hear that its first byte leaves
    is_part      it is the beginning of a message of which the rest comes later: nothing arrives with it
    left, right  in the heap; ``left``: the next one, in a list
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

    first_hop, last_hop  its links; ``last_hop``: the first one beyond
    cap, rate     of each of its flows
    served        integral of its rate since it was last idle, until ``updated_s``
    top           service at which its next flow ends; ``ends_s``: when; ``place``: in the heap of these, from 1 on
    flows, weight how many, as the solver knows, and the weight of each
    total, limit  rate and limit of all its flows, during a solve
    own           the least capacity of the links that it has to itself; ``shared``: how many it has not
    mark          stamp of the last solve that visited it; ``linked``: it is in the lists of its links

    heap          its flows
    active        how many there are
    idle          it has had no flow since its last end was solved
    dirty         changed at this instant
    parked        idle, but still in the lists of its links
    shares        another class may have been active on one of its links since this one became active
    delivered     bytes of flows that have ended; ``started``: sum over others of the service at their start
    watched       what it carries is counted; ``counted``: until now; ``counts_next``: the next one with more to count
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
    """One link of a class, and the class before and after it in that link's list, by their hops."""

    link: int = 0
    flow_class: int = 0
    before: int = 0
    after: int = 0


class Link(Record):
    """``head``, ``count``: hops of its active classes.

    left, weights, open  capacity, weights and number of the classes not yet frozen, during a solve
    level    at which it was last full, if all classes shared no other link
    latest   the last class to become active
    dirty    its capacity has changed at this instant
    carried  bytes, as last counted
    first_standing, last_standing  connections whose windows keep a queue before it; the earliest first
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
    """A level at which a link is full, or a class (-1 - class) meets its limit."""

    level: float = 0.0
    what: int = 0


class Visit(Record):
    """A class that a solve visits. ``limit``: of all its flows; ``share``: its weight."""

    flow_class: int = 0
    limit: float = 0.0
    share: float = 0.0


class Reached(Record):
    """A link that a solve visits."""

    link: int = 0


class Change(Record):
    """A class that has changed at this instant, or a link (-1 - link)."""

    what: int = 0


class Notice(Record):
    """What Python is to hear at the end of an event: see ``dispatch``."""

    kind: int = 0
    who: int = 0


class Arrival(Record):
    """A flow that ``solver.simulate`` simulates: when it begins, bytes (in the end: left), how many alike, its end; and
    the number of the one that is in this place in the order of their ends."""

    begin_s: float = 0.0
    left: float = 0.0
    flows: float = 0.0
    end_s: float = 0.0
    ended: int = 0


class Path(Record):
    """What all connections between two sites have in common.

    passing    share of packets that are not lost at random
    is_up      any packet gets to the other end; ``works``: and acknowledgements get back
    narrowest  the link before which queues stand; -1: there is none
    is_wan     it has links of a WAN
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
    """A path as a window sees it: its capacity, round-trip time, queue, and random loss; rate of the sender's port."""

    capacity: float = 0.0
    rtt_s: float = 0.0
    queue_bytes: float = 0.0
    loss: float = 0.0
    port: float = math.inf


class Connection(Record):
    """One direction between two nodes; its pipe has the same index.

    unlimited      it has no congestion window: it is a flow and no more
    is_open        it has been set up
    sending        the message that is being sent; ``rest``: of one, what a stopped process has not written
    sent_bytes     what of it is to be sent
    arrival_s      of the last message: TCP keeps the order even when a trace shortens the path
    down_since_s   since when no acknowledgement of what was sent has come
    """

    index: int = 0
    flow_class: int = 0
    path: int = 0
    model: int = 0
    copies: int = 0
    private_capacity: float = 0.0
    unlimited: bool = False
    is_open: bool = False
    tells_room: bool = False  # whether anything is to hear that a message has left the queue,
    tells_idle: bool = False  # and that nothing is left to send
    rtt_s: float = 0.0
    sending: int = 0
    rest: int = 0
    sent_bytes: float = 0.0
    stopped_until_s: float = 0.0
    down_since_s: float = 0.0
    arrival_s: float = 0.0
    # ---- messages that have not begun: see ``waiting``
    heap: int = 0
    least_priority: float = 0.0  # of those in the heap
    waiting: int = 0
    waiting_bytes: float = 0.0
    taken: int = 0  # by the kernel: how many, and the first and the last one
    taken_bytes: float = 0.0
    first_taken: int = 0
    last_taken: int = 0
    # ---- bursts
    burst_bytes: float = 0.0  # a burst lasts from idle to idle
    recent_bytes: float = 0.0  # likewise, but with gaps of less than a round trip
    burst_begin_s: float = 0.0
    idle_since_s: float = 0.0
    queueing_s: float = 0.0  # of this burst, behind other connections
    largest_burst_bytes: float = 0.0  # since training began, as those below
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
    limit: float = 0.0  # what path and window allow
    full_bytes: float = 0.0
    timer_s: float = 0.0  # for the end of a round


class Network(Timeline):
    """Everything.

    active    flows
    sequence  number of the last one
    wake_s    when the next one ends, if that is scheduled; ``wakes``: events of this kind, of which some are stale
    parks     whether classes are parked (tests compare)
    ended     flows that have ended at this instant, and whose connections have yet to hear of it: the first one
    free      transfers that are not used any more: the first one
    counts_first, counts_last  classes that have carried more than was counted
    stamp, reached, visited, ends, changes, notices  of the solver: see there
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
