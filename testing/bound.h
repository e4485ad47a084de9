#pragma once

#include <algorithm>
#include <functional>
#include <vector>

namespace macaw::scheduler {

// A lower bound: no schedule of clients with these works on slots of these speeds ends sooner, even
// one that knows all times in advance and may interrupt clients. It is the maximum of all works ÷
// all speeds and, over k, of the k largest works ÷ the k highest speeds (Horvath, Lam and Sethi
// 1977).
struct Bound {
  double seconds = 0;
  bool one_client = false;  // the bound is the largest client on the fastest slot, not a sum
};
inline Bound LowerBound(std::vector<double> works, std::vector<double> speeds) {
  std::ranges::sort(works, std::greater<>());
  std::ranges::sort(speeds, std::greater<>());
  Bound bound;
  double work = 0, speed = 0;
  for (size_t k = 0; k < works.size(); ++k) {
    work += works[k];
    if (k >= speeds.size()) continue;
    speed += speeds[k];
    if (k + 1 < speeds.size() && work / speed > bound.seconds)
      bound = {.seconds = work / speed, .one_client = k == 0};
  }
  if (speed > 0 && work / speed > bound.seconds) bound = {.seconds = work / speed};
  return bound;
}

}  // namespace macaw::scheduler
