#include "server/engine/begin_checks.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace macaw::server {
namespace {

absl::Status CheckUnlearned(const EvaluationConfig& evaluation, uint64_t clients) {
  for (const uint64_t client : evaluation.unlearn) {
    if (client < clients) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation.unlearn names client ", client,
                     ", and the registered clients have the numbers 0 to ", clients - 1,
                     ", in the order of their names: name one of these in the server's file, or "
                     "remove the key, and begin the run again"));
  }
  return absl::OkStatus();
}

absl::Status CheckLeftOutOnce(const EvaluationConfig& evaluation, const Roster& roster) {
  if (evaluation.leave_one_out == 0 || roster.central_test_rows() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "evaluation.leave_one_out tests models on the central test set, and no node has brought one: "
      "start a worker that has it before the run begins and count it in server.workers, or remove "
      "the key from the server's file, and begin the run again");
}

}  // namespace

absl::Status CheckAtBegin(const EvaluationConfig& evaluation, const Roster& roster, bool resumed) {
  MACAW_RETURN_IF_ERROR(CheckUnlearned(evaluation, roster.clients()));
  return resumed ? absl::OkStatus() : CheckLeftOutOnce(evaluation, roster);
}

}  // namespace macaw::server
