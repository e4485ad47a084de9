#include "absl/status/statusor.h"
#include "tests/fuzz/targets.h"
#include "training/process/messages.h"

namespace macaw::fuzz {
namespace {

using training::process::Answer;

constexpr uint64_t kId = 7;

bool FeedReady(absl::string_view bytes) {
  const auto ready = training::process::ParseReady(bytes);
  if (ready.ok()) MACAW_FUZZ_EXPECT(!ready->name.empty());
  return ready.ok() || absl::IsAborted(ready.status());  // the program's own error is an answer
}

std::vector<std::string> Readies() {
  return {R"({"ready": 1, "name": "numpy 1.24", "corrections": true, "evaluates": false})",
          R"({"error": {"kind": "ImportError", "message": "no module"}})"};
}

// `unrated`: the program may leave the sums to the trainer.
bool Check(const absl::StatusOr<Answer>& answer, TaskKind task, bool unrated = false) {
  if (answer.ok() && answer->error.empty() && !(unrated && answer->sums.empty()))
    MACAW_FUZZ_EXPECT(answer->sums.size() == training::SchemaFor(task).sums.size());
  return answer.ok();
}

// The same bytes as the answer to either question, in each kind of task.
bool FeedAnswer(absl::string_view bytes) {
  bool accepted = false;
  for (const TaskKind task :
       {TaskKind::kClassification, TaskKind::kRegression, TaskKind::kNextToken}) {
    for (const bool given : {false, true})
      accepted |= Check(training::process::ParseTrained(bytes, kId, task, given), task, given);
    accepted |= Check(training::process::ParseEvaluated(bytes, kId, task), task);
  }
  return accepted;
}

std::vector<std::string> Answers() {
  return {R"({"id": 7, "rows": 20, "steps": 4, "sums": {"examples": 20, "loss": 3.5, )"
          R"("correct": 11}})",
          R"({"id": 7, "sums": {"examples": 20, "loss": null, "correct": 11}})",
          R"({"id": 7, "error": {"kind": "ValueError", "message": "no", "where": "a.py:3"}})"};
}

}  // namespace

std::vector<Target> ProgramTargets() {
  return {{"program_ready", FeedReady, Readies}, {"program_answer", FeedAnswer, Answers}};
}

}  // namespace macaw::fuzz
