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

  // The attempts that were accepted after the checkpoint or are still leased.
  std::vector<Attempt> Attempts() const {
    std::vector<Attempt> attempts;
    for (const auto& [place, phase] : phases) {
      if (place.first > checkpoint_)
        attempts.insert(attempts.end(), phase.included.begin(), phase.included.end());
      for (const auto& [attempt, node] : phase.leased) attempts.push_back(attempt);
    }
    return attempts;
  }

  struct Phase {
    Digest broadcast;
    std::vector<ClientId> present;
    std::vector<std::pair<WorkerId, uint64_t>> accepted;  // node and commit
    std::vector<Attempt> included;                        // in what was accepted
    std::vector<log::GivenUp> gave_up;
    std::map<Attempt, WorkerId> leased;
    std::string dropped, alone;
    std::vector<ClientId> cohort;
    std::map<ClientId, uint32_t> staleness;
    bool closed = false;
  };
  std::map<std::pair<Round, macaw::Phase>, Phase> phases;
  log::LostStates lost_states;
  log::CutEvaluations evaluations;
  std::vector<ClientId> reset_states;
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
    lost_states.Undo(opened.completed);
    evaluations.Undo(opened.completed);
    reset_states = opened.reset_states;
    begun = false;
    completed = opened.completed;
  }
  void On(const log::NodeJoined& node) {
    joined.insert(node.node);
    there.insert(node.node);
  }
  void On(const log::StatesLost& lost) {
    reset_states.clear();  // they are among the first that it tells of
    lost_states.Add(lost);
  }
  void On(const log::EvaluationGaveUp& gave_up) { evaluations.Add(gave_up); }
  void On(const log::Evaluated& evaluated) { evaluations.Done(evaluated); }
  void On(const log::NodeLost& node) { there.erase(node.node); }
  void On(const log::RoundOpened& opened) {
    begun = true;
    reset_states.clear();  // also in logs of 0.1.0, which have no StatesLost before it
    lost_states.Opened(opened.round, opened.phase);
    // Of the checkpoint's round only those count that train on in the next one.
    if (opened.round < checkpoint_ || (opened.round == checkpoint_ && opened.arrivals == 0)) return;
    Phase& phase = phases[{opened.round, opened.phase}];
    phase = {.broadcast = opened.broadcast, .present = opened.present};
    if (opened.arrivals == 0) return;
    for (const log::Member& member : opened.cohort) phase.cohort.push_back(member.client);
  }
  void On(const log::Leased& leased) {
    if (Phase* phase = Of(leased); phase != nullptr) {
      for (size_t i = 0; i < leased.attempts.size(); ++i) {
        const Attempt& attempt = leased.attempts[i];
        phase->leased[attempt] = leased.node;
        if (i < leased.staleness.size()) {
          phase->staleness[attempt.client] = static_cast<uint32_t>(leased.staleness[i]);
        } else {
          phase->staleness.erase(attempt.client);
        }
      }
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
    phase->included.insert(phase->included.end(), accepted.included.begin(),
                           accepted.included.end());
  }
  void On(const log::GaveUp& gave_up) {
    if (Phase* phase = Of(gave_up); phase != nullptr) {
      phase->gave_up.insert(phase->gave_up.end(), gave_up.given_up.begin(), gave_up.given_up.end());
      for (const log::GivenUp& one : gave_up.given_up) phase->leased.erase(one.attempt);
    }
  }
  void On(const log::RoundLost& lost) {
    Phase* phase = Of(lost);
    if (phase != nullptr) phase->alone = lost.alone;
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

// The first record whose data is lost, in the newest part of the log that one server continued from
// another.
struct Gap {
  uint64_t sequence = 0, offset = 0;
  std::string what;

  std::string Text() const { return absl::StrCat("record ", sequence, " of the log: ", what); }
};

// Finds records whose data is lost.
class Backing {
 public:
  Backing(const RecoverFrom& from, const JournalContent& journal)
      : from_(from), journal_(journal) {}

  // What the record needs and is not there; empty: nothing.
  std::string Missing(const log::Record& record) const {
    return std::visit([this](const auto& one) { return Of(one); }, record);
  }

 private:
  template <typename T>
  std::string Of(const T&) const {
    return "";
  }
  std::string Of(const log::NodeJoined& joined) const {
    // Numbers of nodes that a crash has taken back are given again, so the name must agree, too.
    const auto found = journal_.nodes.find(joined.node);
    if (found != journal_.nodes.end() && found->second.request.name == joined.name &&
        found->second.request.incarnation == joined.incarnation) {
      return "";
    }
    return absl::StrCat("the journal has no registration of node ", joined.node.value, " (",
                        joined.name, ")");
  }
  std::string Of(const log::Accepted& accepted) const {
    if (accepted.round <= from_.checkpoint) return "";
    const auto found = journal_.parts.find({accepted.node, accepted.commit});
    if (found != journal_.parts.end()) {
      const fleet::Part& part = found->second.part;
      std::vector<Attempt> included;
      for (const fleet::ClientRecord& one : part.included) included.push_back(one.attempt);
      if (part.round == accepted.round && part.phase == accepted.phase &&
          included == accepted.included) {
        return "";
      }
    }
    return absl::StrCat("the journal has no part ", accepted.commit, " of node ",
                        accepted.node.value, ", of round ", accepted.round.value);
  }
  std::string Of(const log::RoundOpened& opened) const {
    return from_.rows_before_opening ? RowsBefore(opened.round) : "";
  }
  std::string Of(const log::Closed& closed) const { return RowsBefore(closed.round); }

  std::string RowsBefore(Round round) const {
    if (round <= from_.checkpoint || !from_.has_rows_before || from_.has_rows_before(round))
      return "";
    return absl::StrCat("metrics.jsonl lacks a row of a round before round ", round.value);
  }

  const RecoverFrom& from_;
  const JournalContent& journal_;
};

// Reads the log up to the first gap that is left when it ends.
absl::StatusOr<std::optional<Gap>> Follow(log::Reader& reader, const Backing& backing,
                                          Follower& log) {
  std::optional<Gap> gap;
  while (true) {
    const uint64_t offset = reader.offset();
    MACAW_ASSIGN_OR_RETURN(const std::optional<log::Entry> entry, reader.Next());
    if (!entry.has_value()) return gap;
    if (std::holds_alternative<log::RunEnded>(entry->record)) log.ended = true;
    // A server that went back to a checkpoint began a new journal.
    const auto* opened = std::get_if<log::RunOpened>(&entry->record);
    if (opened != nullptr) log.ended = false;
    if (opened != nullptr && !opened->goes_on) gap.reset();
    if (gap.has_value()) continue;
    std::string missing = backing.Missing(entry->record);
    if (missing.empty()) {
      log.Add(entry->record);
    } else {
      gap = {.sequence = entry->sequence, .offset = offset, .what = std::move(missing)};
    }
  }
}

absl::StatusOr<Restored::Member> MemberOf(const Follower& log, const JournalNode& node) {
  Restored::Member member{.node = node.node,
                          .session = node.session,
                          .request = node.request,
                          .there = log.there.contains(node.node)};
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

absl::StatusOr<Recovery> Recover(const std::string& run_dir, const RecoverFrom& from) {
  const std::string folder = JournalFolder(run_dir), path = run_dir + "/rounds.log";
  if (!FileExists(folder) || !FileExists(path))
    return absl::NotFoundError("it was not kept commit by commit");
  MACAW_ASSIGN_OR_RETURN(JournalContent journal, ReadJournal(folder));
  Recovery recovery{.end = {.synced = std::max(from.log_bytes, journal.synced_log_bytes)}};
  MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(path, recovery.end.synced));
  Follower log(from.checkpoint);
  MACAW_ASSIGN_OR_RETURN(const std::optional<Gap> gap, Follow(reader, Backing(from, journal), log));
  if (log.ended) return absl::FailedPreconditionError("its server had ended it");
  if (std::ranges::count(from.configurations, log.configuration) == 0) {
    if (log.completed > from.checkpoint) {
      return absl::InvalidArgumentError(
          absl::StrCat("its ", log.completed.value, " rounds are those of another configuration"));
    }
    return absl::FailedPreconditionError("it had another configuration");
  }
  if (gap.has_value()) {
    if (gap->offset < recovery.end.synced) return absl::DataLossError(gap->Text());
    recovery.end.cut = gap->offset;
    recovery.cut = gap->Text();
  }
  if (log.completed < from.checkpoint)
    return absl::FailedPreconditionError("its log ends before its checkpoint");
  recovery.sums = std::move(journal.sums);
  recovery.completed = log.completed;
  recovery.reset_states = std::move(log.reset_states);
  Restored& restored = recovery.restored;
  restored.begun = log.begun;
  restored.lost_states = std::move(log.lost_states);
  restored.evaluations = std::move(log.evaluations);
  if (!log.joined.empty()) restored.newest = *log.joined.rbegin();
  for (const WorkerId id : log.joined) {
    MACAW_ASSIGN_OR_RETURN(Restored::Member member, MemberOf(log, journal.nodes.at(id)));
    restored.members.push_back(std::move(member));
  }
  const auto newest_commit = [&](WorkerId node, uint64_t commit) {
    for (Restored::Member& member : restored.members) {
      if (member.node == node) member.last_commit = std::max(member.last_commit, commit);
    }
  };
  if (const auto last = log.phases.find({from.checkpoint, Phase(0)}); last != log.phases.end()) {
    for (const auto& [attempt, node] : last->second.leased) {
      const auto staleness = last->second.staleness.find(attempt.client);
      restored.train_on.push_back(
          {.attempt = attempt,
           .node = node,
           .staleness = staleness != last->second.staleness.end() ? staleness->second : 0});
    }
    log.phases.erase(last);
  }
  for (auto& [place, phase] : log.phases) {
    Restored::PhaseStory story{.broadcast = phase.broadcast,
                               .present = std::move(phase.present),
                               .gave_up = std::move(phase.gave_up),
                               .leased = std::move(phase.leased),
                               .dropped = std::move(phase.dropped),
                               .alone = std::move(phase.alone),
                               .cohort = std::move(phase.cohort),
                               .staleness = std::move(phase.staleness),
                               .closed = phase.closed};
    for (const auto& [node, commit] : phase.accepted) {
      JournalPart& part = journal.parts.at({node, commit});
      newest_commit(node, commit);
      story.accepted.push_back(
          {.node = node, .node_name = part.node_name, .part = std::move(part.part)});
    }
    restored.phases.emplace(place, std::move(story));
  }
  return recovery;
}

absl::StatusOr<std::vector<Attempt>> AttemptsSince(const std::string& run_dir, Round checkpoint) {
  const std::string path = run_dir + "/rounds.log";
  if (!FileExists(JournalFolder(run_dir)) || !FileExists(path)) return std::vector<Attempt>();
  // Damage ends the log: the next server does not read on behind it either.
  MACAW_ASSIGN_OR_RETURN(log::Reader reader, log::Reader::Open(path, /*synced=*/0));
  Follower log(checkpoint);
  while (true) {
    MACAW_ASSIGN_OR_RETURN(const std::optional<log::Entry> entry, reader.Next());
    if (!entry.has_value()) break;
    log.Add(entry->record);
  }
  return log.ended ? std::vector<Attempt>() : log.Attempts();
}

}  // namespace macaw::server
