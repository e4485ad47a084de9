#include "server/journal/recovery.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "core/files.h"
#include "core/status.h"
#include "server/log/reader.h"

namespace macaw::server {
namespace {

// Follows a log's records to its end: which nodes were registered, and the progress of each phase
// since the checkpoint.
class Follower {
 public:
  explicit Follower(Round checkpoint) : checkpoint_(checkpoint) {}

  void Add(const log::Record& record) {
    std::visit([this](const auto& one) { On(one); }, record);
  }

  struct Phase {
    Digest broadcast;
    std::vector<ClientId> present;
    std::vector<std::pair<WorkerId, uint64_t>> accepted;  // node and commit
    std::vector<log::GivenUp> gave_up;
    std::map<Attempt, WorkerId> leased;
    std::string dropped;
    bool closed = false;
  };
  std::map<std::pair<Round, macaw::Phase>, Phase> phases;
  std::set<WorkerId> joined, there;
  Round completed;
  bool begun = false, ended = false;
  Digest configuration;

 private:
  template <typename T>
  void On(const T&) {}
  void On(const log::RunOpened& opened) {
    ended = false;
    configuration = opened.configuration;
    if (opened.goes_on) return;
    joined.clear();
    there.clear();
    phases.clear();
    begun = false;
    completed = opened.completed;
  }
  void On(const log::NodeJoined& node) {
    joined.insert(node.node);
    there.insert(node.node);
  }
  void On(const log::NodeLost& node) { there.erase(node.node); }
  void On(const log::RoundOpened& opened) {
    begun = true;
    if (opened.round > checkpoint_)
      phases[{opened.round, opened.phase}] = {.broadcast = opened.broadcast,
                                              .present = opened.present};
  }
  void On(const log::Leased& leased) {
    if (Phase* phase = Of(leased); phase != nullptr) {
      for (const Attempt& attempt : leased.attempts) phase->leased[attempt] = leased.node;
    }
  }
  void On(const log::Requeued& requeued) {
    if (Phase* phase = Of(requeued); phase != nullptr) {
      for (const Attempt& attempt : requeued.attempts) phase->leased.erase(attempt);
    }
  }
  void On(const log::Accepted& accepted) {
    Phase* phase = Of(accepted);
    if (phase == nullptr) return;
    for (const Attempt& attempt : accepted.included) phase->leased.erase(attempt);
    for (const log::GivenUp& one : accepted.given_up) phase->leased.erase(one.attempt);
    phase->accepted.emplace_back(accepted.node, accepted.commit);
  }
  void On(const log::GaveUp& gave_up) {
    if (Phase* phase = Of(gave_up); phase != nullptr) {
      phase->gave_up.insert(phase->gave_up.end(), gave_up.given_up.begin(), gave_up.given_up.end());
      for (const log::GivenUp& one : gave_up.given_up) phase->leased.erase(one.attempt);
    }
  }
  void On(const log::RoundLost& lost) {
    Phase* phase = Of(lost);
    if (phase == nullptr || !lost.dropped) return;
    phase->dropped = lost.why;
    phase->leased.clear();
  }
  void On(const log::Closed& closed) {
    if (Phase* phase = Of(closed); phase != nullptr) phase->closed = true;
    if (closed.last) completed = std::max(completed, closed.round);
  }
  void On(const log::RunEnded&) { ended = true; }

  template <typename T>
  Phase* Of(const T& record) {
    const auto it = phases.find({record.round, record.phase});
    return it != phases.end() ? &it->second : nullptr;
  }

  const Round checkpoint_;
};

absl::StatusOr<Restored::Member> MemberOf(const Follower& log, const JournalContent& journal,
                                          WorkerId id) {
  const auto found = journal.nodes.find(id);
  if (found == journal.nodes.end()) {
    return absl::DataLossError(absl::StrCat("the journal has no registration of node ", id.value));
  }
  Restored::Member member{.node = id,
                          .session = found->second.session,
                          .request = found->second.request,
                          .there = log.there.contains(id)};
  const fleet::Blob& table = member.request.table;
  MACAW_ASSIGN_OR_RETURN(member.table, fleet::ClientTable::Decode(
                                           table.bytes != nullptr ? table.bytes->bytes()
                                                                  : std::span<const std::byte>(),
                                           member.request.clients));
  return member;
}

}  // namespace

std::string JournalFolder(const std::string& run_dir) { return run_dir + "/journal"; }
std::string UploadsFolder(const std::string& run_dir) {
  return JournalFolder(run_dir) + "/uploads";
}

absl::StatusOr<Recovery> Recover(const std::string& run_dir, Round checkpoint,
                                 const Digest& configuration) {
  const std::string folder = JournalFolder(run_dir), path = run_dir + "/rounds.log";
  if (!FileExists(folder) || !FileExists(path))
    return absl::NotFoundError("it was not kept commit by commit");
  Follower log(checkpoint);
  MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(path));
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<log::Entry> entry, reader.Next());
    if (!entry.has_value()) break;
    log.Add(entry->record);
  }
  if (log.ended) return absl::FailedPreconditionError("its server had ended it");
  if (log.configuration != configuration)
    return absl::FailedPreconditionError("it had another configuration");
  if (log.completed < checkpoint)
    return absl::FailedPreconditionError("its log ends before its checkpoint");
  MACAW_ASSIGN_OR_RETURN(JournalContent journal, ReadJournal(folder));
  Recovery recovery{.sums = std::move(journal.sums), .completed = log.completed};
  Restored& restored = recovery.restored;
  restored.begun = log.begun;
  if (!log.joined.empty()) restored.newest = *log.joined.rbegin();
  for (const WorkerId id : log.joined) {
    MACAW_ASSIGN_OR_RETURN(Restored::Member member, MemberOf(log, journal, id));
    restored.members.push_back(std::move(member));
  }
  const auto newest_commit = [&](WorkerId node, uint64_t commit) {
    for (Restored::Member& member : restored.members) {
      if (member.node == node) member.last_commit = std::max(member.last_commit, commit);
    }
  };
  for (auto& [place, phase] : log.phases) {
    Restored::PhaseStory story{.broadcast = phase.broadcast,
                               .present = std::move(phase.present),
                               .gave_up = std::move(phase.gave_up),
                               .leased = std::move(phase.leased),
                               .dropped = std::move(phase.dropped),
                               .closed = phase.closed};
    for (const auto& [node, commit] : phase.accepted) {
      const auto part = journal.parts.find({node, commit});
      if (part == journal.parts.end()) {
        return absl::DataLossError(absl::StrCat("the journal has no part ", commit, " of node ",
                                                node.value, ", of round ", place.first.value));
      }
      newest_commit(node, commit);
      story.accepted.push_back({.node = node,
                                .node_name = part->second.node_name,
                                .part = std::move(part->second.part)});
    }
    restored.phases.emplace(place, std::move(story));
  }
  return recovery;
}

}  // namespace macaw::server
