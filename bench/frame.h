#pragma once

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>

// What the benchmarks in C++ share: the clock of a thread, the shortest of many runs, and the line
// about the command and the machine that each prints first. Those in Python have frame.py.
namespace macaw::bench {

// Seconds that this thread has computed: a busy machine makes others wait, not this clock run.
inline double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds of one call of `work`: the least of many batches, for about half a second in all. Short
// calls are timed together, because reading the clock takes about as long.
template <typename F>
double Shortest(const F& work) {
  double best = 1e9, total = 0;
  size_t calls = 1;
  while (total < 0.5) {
    const double start = ThreadSeconds();
    for (size_t i = 0; i < calls; ++i) work();
    const double time = ThreadSeconds() - start;
    best = std::min(best, time / static_cast<double>(calls));
    total += time;
    if (time < 1e-4) calls *= 2;
  }
  return best;
}

// The command, and the machine with its load.
inline void PrintHeading(int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    const std::string word = arguments[i];
    std::printf("%s ", i == 0 ? word.substr(word.rfind('/') + 1).c_str() : word.c_str());
  }
  std::string processor = "unknown", load = "?";
  std::ifstream about("/proc/cpuinfo");
  for (std::string line; std::getline(about, line);)
    if (line.starts_with("model name")) processor = line.substr(line.find(':') + 2);
  std::ifstream("/proc/loadavg") >> load;
  std::printf("| %ld cores of %s, load %s\n\n", sysconf(_SC_NPROCESSORS_ONLN), processor.c_str(),
              load.c_str());
}

}  // namespace macaw::bench
