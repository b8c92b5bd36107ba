"""Small graph files as the Internet Topology Zoo and SNDlib write them, to be spoilt by tests."""

from __future__ import annotations

KEYS = """\
<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d33" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d29" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d32" />
  <key attr.name="Internal" attr.type="int" for="node" id="d31" />
  <key attr.name="LinkSpeed" attr.type="string" for="edge" id="d34" />
  <key attr.name="LinkSpeedUnits" attr.type="string" for="edge" id="d36" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d37" />
  <key attr.name="LinkLabel" attr.type="string" for="edge" id="d35" />
  <graph edgedefault="undirected">
"""
FIRST_LINE = KEYS.count("\n") + 1  # of what is put into the graph
ENDS = ' source="{a}" target="{b}"'
CITIES = {"0": ("London", 51.51, -0.13), "1": ("Paris", 48.86, 2.35), "2": ("Zürich", 47.37, 8.54)}


def vertex(key: str, label: str | None = None, place: tuple[object, object] | None = None, **more: object) -> str:
    """One node, on one line."""
    name, latitude, longitude = CITIES.get(key, (f"City {key}", 50.0, 10.0))
    at = (latitude, longitude) if place is None else place
    entries = [("d33", name if label is None else label), *(("d29", at[0]), ("d32", at[1])) * (at[0] is not None)]
    data = "".join(f'<data key="{key}">{value}</data>' for key, value in [*entries, *_codes(more)])
    return f'<node id="{key}">{data}</node>\n'


def edge(a: str, b: str, **more: object) -> str:
    """One edge, on one line."""
    data = "".join(f'<data key="{key}">{value}</data>' for key, value in _codes(more))
    return f"<edge{ENDS.format(a=a, b=b)}>{data}</edge>\n"


def _codes(more: dict[str, object]) -> list[tuple[str, object]]:
    codes = {"internal": "d31", "speed": "d34", "units": "d36", "raw": "d37", "text": "d35"}
    return [(codes[key], value) for key, value in more.items()]


def graphml(*parts: str) -> str:
    """A file of these nodes and edges."""
    return KEYS + "".join(parts) + "  </graph>\n</graphml>\n"


TRIANGLE = (
    vertex("0"),
    vertex("1"),
    vertex("2"),
    edge("0", "1", raw="10000000000.0", speed="10", units="G", text="10 Gbps"),
    edge("1", "2", raw="2500000000.0"),
    edge("2", "0", raw="155000000.0"),
)

GML = """\
graph [
  directed 0
  DateObtained "22/10/10"
  label "Small &#38; plain"
  node [
    id 0
    label "London"
    Longitude -0.13
    Latitude 51.51
  ]
  node [
    id 1
    label "Paris"
    Longitude 2.35
    Latitude 48.86
  ]
  edge [
    source 0
    target 1
    LinkSpeedRaw 1000000000.0
  ]
]
"""

SNDLIB = """\
<?xml version="1.0" encoding="ISO-8859-1"?>
<network xmlns="http://sndlib.zib.de/network" version="1.0">
 <networkStructure>
  <nodes coordinatesType="geographical">
   <node id="ATLAng"><coordinates><x>-84.38</x><y>33.75</y></coordinates></node>
   <node id="CHINng"><coordinates><x>-87.62</x><y>41.83</y></coordinates></node>
   <node id="NYCMng"><coordinates><x>-73.96</x><y>40.78</y></coordinates></node>
  </nodes>
  <links>
   <link id="ATLAng_CHINng"><source>ATLAng</source><target>CHINng</target>
    <preInstalledModule><capacity>9920.0</capacity><cost>0.0</cost></preInstalledModule></link>
   <link id="CHINng_NYCMng"><source>CHINng</source><target>NYCMng</target>
    <additionalModules><addModule><capacity>2480.0</capacity><cost>1</cost></addModule>
     <addModule><capacity>622.0</capacity><cost>1</cost></addModule></additionalModules></link>
  </links>
 </networkStructure>
</network>
"""
