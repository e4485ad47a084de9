// The calls of operators.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/status.h"
#include "server/run_threads.h"
#include "server/waits_for.h"

namespace macaw::server {
namespace {

constexpr size_t kChangesRemembered = 256;

}  // namespace

void RunThreads::Status(fleet::Reply<admin::RunStatus> reply) {
  loop_.Post([this, reply = std::move(reply)]() mutable {
    admin::RunStatus status{.run = options_.run.name};
    engine_.Describe(status, SteadyClock().Now());
    status.seconds = Elapsed();
    if (status.state == admin::RunState::kWaiting) {
      status.step_seconds = ToSeconds(SteadyClock().Now() - started_);
    }
    status.ended = ended_how_;
    status.ending_reason = ended_why_;
    status.latest_row = latest_row_.Get();
    status.memory_bytes = writer_.memory_peak();
    status.nodes_lost = nodes_lost_;
    status.parts_turned_down = parts_turned_down_;
    std::error_code ignored;  // a folder that is gone has no space
    const std::filesystem::space_info space = std::filesystem::space(options_.run_dir, ignored);
    if (!ignored) status.disk_free = space.available;
    status.program = options_.program;
    size_t i = 0;  // the nodes are described in the engine's order
    for (const auto& [id, node] : engine_.nodes()) {
      admin::NodeStatus& told = status.nodes[i++];
      const auto use = node_use_.find(node.session);
      if (use == node_use_.end()) continue;
      told.memory_bytes = use->second.memory;
      told.sent_bytes = use->second.sent;
      told.received_bytes = use->second.received;
    }
    status.heartbeat_seconds = ToSeconds(sessions_.HeartbeatEvery());
    MarkLateNodes(status);
    status.waits_for = WaitsFor(status);
    std::move(reply)(std::move(status));
  });
}

void RunThreads::Apply(admin::Change change, fleet::Reply<admin::Changed> reply) {
  loop_.Post([this, change = std::move(change), reply = std::move(reply)]() mutable {
    if (suspended_) return std::move(reply)(Suspended());
    const auto before =
        std::ranges::find(changes_, change.request_id, &decltype(changes_)::value_type::first);
    if (before != changes_.end() && !change.request_id.empty())
      return AnswerOperator(before->second, std::move(reply));
    auto [said, effects] = engine_.Operate(change, SteadyClock().Now());
    Carry(std::move(effects));
    if (said.ok()) log_.Info(absl::StrCat("operator by=", change.by, " ", *said));
    // A call that is to be repeated is looked at again, also under its own number.
    if (!absl::IsUnavailable(said.status())) changes_.emplace_back(change.request_id, said);
    if (changes_.size() > kChangesRemembered) changes_.pop_front();
    AnswerOperator(said, std::move(reply));
  });
}

void RunThreads::AnswerOperator(const absl::StatusOr<std::string>& said,
                                fleet::Reply<admin::Changed> reply) {
  if (!said.ok()) return std::move(reply)(said.status());
  admin::Changed changed{.text = *said};
  if (ended_at_.has_value() || suspended_) return std::move(reply)(std::move(changed));
  writer_.After(RunWriter::Safe::kFromTheMachine,
                [reply = std::move(reply),
                 changed = std::move(changed)](const absl::Status& written) mutable {
                  if (!written.ok()) return std::move(reply)(NotWritten());
                  std::move(reply)(std::move(changed));
                });
}

}  // namespace macaw::server
