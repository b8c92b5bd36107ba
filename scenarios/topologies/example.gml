graph [
  directed 0
  multigraph 1
  Network "Example"
  Creator "drawn by hand for this example; invented; CC0"
  node [
    id 0
    label "Lisbon"
    Longitude -9.14
    Internal 1
    Latitude 38.72
  ]
  node [
    id 1
    label "Madrid"
    Longitude -3.7
    Internal 1
    Latitude 40.42
  ]
  node [
    id 2
    label "Paris"
    Longitude 2.35
    Internal 1
    Latitude 48.86
  ]
  node [
    id 3
    label "Milan"
    Longitude 9.19
    Internal 1
    Latitude 45.46
  ]
  node [
    id 4
    label "Frankfurt"
    Longitude 8.68
    Internal 1
    Latitude 50.11
  ]
  node [
    id 5
    label "Amsterdam"
    Longitude 4.9
    Internal 1
    Latitude 52.37
  ]
  node [
    id 6
    label "Vienna"
    Longitude 16.37
    Internal 1
    Latitude 48.21
  ]
  node [
    id 7
    label "Warsaw"
    Longitude 21.01
    Internal 1
    Latitude 52.23
  ]
  node [
    id 8
    label "Upstream"
    Internal 0
  ]
  edge [
    source 0
    target 1
    LinkLabel "10 Gbps"
    LinkSpeedRaw 10000000000.0
  ]
  edge [
    source 1
    target 2
    LinkLabel "10 Gbps"
    LinkSpeedRaw 10000000000.0
  ]
  edge [
    source 2
    target 4
    LinkLabel "40 Gbps"
    LinkSpeedRaw 40000000000.0
  ]
  edge [
    source 2
    target 5
  ]
  edge [
    source 5
    target 4
    LinkLabel "40 Gbps"
    LinkSpeedRaw 40000000000.0
  ]
  edge [
    source 4
    target 6
    LinkLabel "10 Gbps"
    LinkSpeedRaw 10000000000.0
  ]
  edge [
    source 6
    target 7
    LinkLabel "2.5 Gbps"
    LinkSpeedRaw 2500000000.0
  ]
  edge [
    source 4
    target 7
  ]
  edge [
    source 1
    target 3
    LinkLabel "STM-16"
    LinkSpeedRaw 2488320000.0
  ]
  edge [
    source 3
    target 6
    LinkLabel "10 Gbps"
    LinkSpeedRaw 10000000000.0
  ]
  edge [
    source 3
    target 4
    LinkLabel "10 Gbps"
    LinkSpeedRaw 10000000000.0
  ]
  edge [
    source 4
    target 8
  ]
]
