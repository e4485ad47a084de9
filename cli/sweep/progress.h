#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "core/clock.h"

namespace macaw::cli {

// How far a sweep is, for people: in a terminal one live line, else a line a job. One thread.
class SweepProgress {
 public:
  struct Options {
    bool terminal = false;
    bool quiet = false;
    std::function<size_t()> width = [] { return size_t{80}; };  // of the terminal, in columns
  };
  // `clock` must outlive it; `write` gets raw text.
  SweepProgress(Options options, const Clock& clock, std::function<void(absl::string_view)> write);

  // Of the sweep: `done` of `jobs` are over, and so many rounds are left to do at most.
  void Update(size_t done, size_t jobs, uint64_t rounds_left);
  void Best(std::string text) { best_ = std::move(text); }  // "test_accuracy 0.9402 (007)"
  void Begin(const std::string& job) { rounds_.try_emplace(job, 0); }
  void Round(const std::string& job, uint32_t round);
  void End(const std::string& job,
           const std::string& line);  // a line of its own, where no terminal
  void Say(absl::string_view message);
  void Finish();

  // "12 of 24 done, 2 running  best test_accuracy 0.9402 (007)  about 1:23 left", cut to `room`.
  std::string Line(size_t room = SIZE_MAX) const;

 private:
  void Draw();

  const Options options_;
  const Clock& clock_;
  const std::function<void(absl::string_view)> write_;
  const TimePoint began_;
  TimePoint drawn_;
  size_t done_ = 0, jobs_ = 0;
  uint64_t rounds_left_ = 0;                // when Update was called last
  uint64_t rounds_since_ = 0;               // done since then
  uint64_t rounds_seen_ = 0;                // done since the beginning of this command
  std::map<std::string, uint32_t> rounds_;  // of the jobs that run: the last round
  std::string best_;
  bool live_ = false;  // the cursor stands behind an unfinished line
};

}  // namespace macaw::cli
