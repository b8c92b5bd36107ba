// Replays a graph of transfers on SimGrid; Graph.text in simgrid.py describes the format. Prints the end of each transfer, then the
// seconds of the run.
#include <chrono>
#include <cstdio>
#include <simgrid/s4u.hpp>
#include <vector>

namespace sg4 = simgrid::s4u;

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  FILE* in = fopen(argv[1], "r");
  int n_links, n_hosts, n_transfers, count, number;
  double capacity, latency, delay, size;
  auto* zone = sg4::create_star_zone("all");
  if (in == nullptr || fscanf(in, "%d %d %d", &n_links, &n_hosts, &n_transfers) != 3)
    return 2;
  std::vector<sg4::Link*> links;
  for (int i = 0; i < n_links; i++) {
    if (fscanf(in, "%lf %lf", &capacity, &latency) != 2)
      return 2;
    links.push_back(zone->create_link("l" + std::to_string(i), capacity)->set_latency(latency)->seal());
  }
  std::vector<sg4::Host*> hosts;
  for (int i = 0; i < n_hosts; i++) {
    auto* host = zone->create_host("h" + std::to_string(i), 1.0)->seal();
    hosts.push_back(host);
    for (int down = 0; down < 2; down++) {  // uplinks, then downlinks
      std::vector<sg4::LinkInRoute> route;
      if (fscanf(in, "%d", &count) != 1)
        return 2;
      for (int k = 0; k < count; k++) {
        if (fscanf(in, "%d", &number) != 1)
          return 2;
        route.emplace_back(links[number]);
      }
      auto* point = host->get_netpoint();
      zone->add_route(down ? nullptr : point, down ? point : nullptr, nullptr, nullptr, route, false);
    }
  }
  zone->seal();
  std::vector<double> ends(n_transfers);
  std::vector<std::vector<int>> next(n_transfers);
  std::vector<sg4::SemaphorePtr> gates;
  for (int i = 0; i < n_transfers; i++) {
    int source, target;
    if (fscanf(in, "%d %d %lf %lf %d", &source, &target, &delay, &size, &count) != 5)
      return 2;
    for (int k = 0; k < count; k++) {
      if (fscanf(in, "%d", &number) != 1)
        return 2;
      next[number].push_back(i);
    }
    auto gate = sg4::Semaphore::create(0);
    gates.push_back(gate);
    sg4::Actor::create("t", hosts[source], [&, i, source, target, delay, size, count, gate] {
      for (int k = 0; k < count; k++)
        gate->acquire();
      if (delay > 0)
        sg4::this_actor::sleep_for(delay);
      sg4::Comm::sendto(hosts[source], hosts[target], (uint64_t)size);
      ends[i] = sg4::Engine::get_clock();
      for (int following : next[i])
        gates[following]->release();
    });
  }
  auto begin = std::chrono::steady_clock::now();
  engine.run();
  auto end = std::chrono::steady_clock::now();
  for (double at : ends)
    printf("%.12f\n", at);
  printf("%.6f\n", std::chrono::duration<double>(end - begin).count());
  return 0;
}
