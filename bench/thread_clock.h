#pragma once

#include <time.h>

#include <algorithm>

namespace macaw::bench {

// Seconds that this thread has computed: a busy machine makes others wait, not this clock run.
inline double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The shortest of many runs of `work`, for about half a second in all.
template <typename F>
double Shortest(const F& work) {
  double best = 1e9, total = 0;
  while (total < 0.5) {
    const double start = ThreadSeconds();
    work();
    const double time = ThreadSeconds() - start;
    best = std::min(best, time);
    total += time;
  }
  return best;
}

}  // namespace macaw::bench
