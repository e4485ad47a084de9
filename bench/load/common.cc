#include "bench/load/common.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/programs.h"

namespace macaw::bench {

Times::Times(std::vector<double> seconds) : sorted(std::move(seconds)) {
  std::ranges::sort(sorted);
}

double Times::At(double share) const {
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

Times All(size_t count, const std::function<void(size_t)>& each) {
  std::vector<double> seconds(count);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < count; i += kThreads) {
        const double begin = Now();
        each(i);
        seconds[i] = Now() - begin;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return Times(std::move(seconds));
}

fleet::HelloReply Hello(fleet::FleetLink& link) {
  // A server that has just been started again may not listen yet.
  for (int i = 0; i < 200; ++i) {
    auto reply = link.Hello({1, 0, "load"});
    if (reply.ok()) return *std::move(reply);
    if (!absl::IsUnavailable(reply.status())) Check(reply.status(), "hello");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Check(absl::UnavailableError("no answer for ten seconds"), "hello");
  return {};
}

void AllowDescriptors(size_t count) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= count) return;
  Check(absl::ResourceExhaustedError(
            absl::StrCat("so many connections need ", count, " open files, and a process may have ",
                         files.rlim_cur, " here: raise the hard limit (ulimit -Hn)")),
        "open files");
}

}  // namespace macaw::bench
