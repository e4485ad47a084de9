#include "cli/diff/diff.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/diff/beside.h"
#include "cli/diff/words.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

namespace log = server::log;
using Stage = Parting::Stage;

// Columns that count: a tolerance is for what is computed.
bool IsCount(const std::string& column) {
  static constexpr const char* kCounts[] = {"clients", "left_out", "examples", "steps", "late"};
  return std::ranges::find(kCounts, column) != std::end(kCounts);
}

// The values of a row that differ, by name. `common`: only of names that both have.
std::vector<ValueDifference> Differing(const MetricsRow& a, const MetricsRow& b, bool common,
                                       double tolerance) {
  std::vector<ValueDifference> differing;
  const auto value = [](const MetricsRow& row, const std::string& name) {
    const auto found = row.find(name);
    return found == row.end() ? std::nullopt : std::optional<double>(found->second);
  };
  std::set<std::string> names;
  for (const MetricsRow* const row : {&a, &b}) {
    for (const auto& [name, number] : *row) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto x = value(a, name), y = value(b, name);
    const bool both = x.has_value() && y.has_value();
    if (both ? Agree(*x, *y, IsCount(name) ? 0 : tolerance) : common) continue;
    differing.push_back({.name = name, .first = x, .second = y});
  }
  return differing;
}

// Looks for the first round in which two runs differ: in their bits, or by more than a tolerance.
class Walk {
 public:
  Walk(const Trace& a, const Trace& b, const DiffOptions& options,
       const std::vector<ModelDifference>& models)
      : a_(a), b_(b), options_(options), models_(models) {}

  std::optional<Parting> First() const {
    const bool runs = a_.is_run && b_.is_run;
    const uint32_t rounds = std::min(a_.rounds(), b_.rounds());
    std::optional<Parting> parting;
    for (const uint32_t round : RoundsUpTo(rounds)) {
      parting = InRound(Round(round));
      if (parting.has_value()) break;
    }
    // A column that one run does not have (it evaluates in other rounds) does not hide where the
    // training parts.
    for (const auto& [round, row] : a_.rows) {
      if (runs && !parting.has_value()) parting = InRows(Round(round), /*common=*/false);
    }
    if (!parting.has_value()) parting = InLostRows();
    if (!parting.has_value() && runs) parting = AtTheEnd(rounds);
    return WithModels(std::move(parting));
  }

 private:
  bool exact() const { return options_.tolerance == 0 || options_.digests; }

  // The rounds of which the first one's rows or log tell: a table may count in any steps.
  std::set<uint32_t> RoundsUpTo(uint32_t last) const {
    std::set<uint32_t> there;
    for (const auto& [round, row] : a_.rows) there.insert(round);
    if (a_.history.has_value()) {
      for (const auto& [round, phases] : a_.history->rounds()) there.insert(round.value);
    }
    there.erase(there.upper_bound(last), there.end());
    return there;
  }

  std::optional<Parting> InRound(Round round) const {
    if (a_.history.has_value() && b_.history.has_value()) {
      auto parting = InLogs(round);
      if (parting.has_value()) return parting;
    }
    auto parting = InRows(round, /*common=*/true);
    return parting.has_value() ? parting : InModelDigests(round);
  }

  // `common`: only columns that both rows have.
  std::optional<Parting> InRows(Round round, bool common) const {
    const auto first = a_.rows.find(round.value), second = b_.rows.find(round.value);
    if (first == a_.rows.end() || second == b_.rows.end()) return std::nullopt;
    const bool runs = a_.is_run && b_.is_run;
    std::vector<ValueDifference> columns =
        Differing(first->second, second->second, common, options_.tolerance);
    if (columns.empty()) return std::nullopt;
    // What clients report while they train comes before what is seen of the model. A column that
    // one run lacks, such as those of virtual time, says nothing of the training.
    const bool trained = std::ranges::any_of(columns, [](const ValueDifference& column) {
      return column.first.has_value() && column.second.has_value() &&
             (absl::StartsWith(column.name, "train_") || IsCount(column.name));
    });
    return Parting{.round = round.value,
                   .stage = runs && trained ? Stage::kTraining : Stage::kMetrics,
                   .what = runs && trained ? "the clients train otherwise" : "metrics differ",
                   .columns = std::move(columns)};
  }

  std::optional<Parting> InLogs(Round round) const {
    const auto first = a_.history->rounds().find(round), second = b_.history->rounds().find(round);
    const bool in_first = first != a_.history->rounds().end(),
               in_second = second != b_.history->rounds().end();
    if (!in_first || !in_second) return std::nullopt;
    for (const auto& [phase, story] : first->second) {
      const auto other = second->second.find(phase);
      if (other == second->second.end()) {
        return Parting{.round = round.value,
                       .what = absl::StrCat("only the first has a phase ", int{phase.value})};
      }
      auto parting = InPhase(round, phase, story, other->second);
      if (parting.has_value()) return parting;
    }
    if (second->second.size() > first->second.size())
      return Parting{.round = round.value, .what = "the second has more phases"};
    return std::nullopt;
  }

  std::optional<Parting> InPhase(Round round, Phase phase, const log::History::PhaseStory& was,
                                 const log::History::PhaseStory& is) const {
    const auto drawn = [&](std::string what) {
      return Parting{.round = round.value, .stage = Stage::kDraw, .what = std::move(what)};
    };
    const auto trained = [&](std::string what) {
      return Parting{.round = round.value, .stage = Stage::kTraining, .what = std::move(what)};
    };
    if (was.opened.eligible != is.opened.eligible) {
      return drawn(was.opened.present != is.opened.present
                       ? "other clients were present"
                       : "other clients, or other numbers of their training rows, to draw from");
    }
    if (was.opened.cohort != is.opened.cohort)
      return drawn(CohortText(was.opened.cohort, is.opened.cohort));
    if (was.opened.max_weight != is.opened.max_weight ||
        was.opened.total_weight != is.opened.total_weight)
      return drawn("the clients have other weights");
    if (exact() && was.opened.broadcast != is.opened.broadcast) {
      if (phase.value > 0) return trained("a later phase sends something else to the clients");
      if (round == Round(1))
        return Parting{.round = 1,
                       .stage = Stage::kStart,
                       .what =
                           "the first round sends something else to the clients: another first "
                           "model, or what the rule sends beside it"};
      return Parting{.round = round.value - 1,
                     .stage = Stage::kModel,
                     .what = absl::StrCat("another model comes out of it, which round ",
                                          round.value, " sends")};
    }
    std::set<uint64_t> first, second;
    for (const auto& [client, why] : was.given_up) first.insert(client.value);
    for (const auto& [client, why] : is.given_up) second.insert(client.value);
    if (first != second)
      return trained(absl::StrCat("other clients were left out: ", SetsText(first, second)));
    if (was.dropped != is.dropped)
      return trained(was.dropped ? "only the first dropped it" : "only the second dropped it");
    if (!was.closed.has_value() || !is.closed.has_value()) return std::nullopt;
    if (was.closed->counted != is.closed->counted) {
      return trained(absl::StrCat("the first counted ", Counted(was.closed->counted, "client"),
                                  ", the second ", is.closed->counted));
    }
    return std::nullopt;
  }

  // What evaluations saw: the digest of the model after a round.
  std::optional<Parting> InModelDigests(Round round) const {
    if (!exact() || !a_.history.has_value() || !b_.history.has_value()) return std::nullopt;
    const auto first = a_.history->rounds().find(round), second = b_.history->rounds().find(round);
    if (first == a_.history->rounds().end() || second == b_.history->rounds().end())
      return std::nullopt;
    for (const auto& [phase, story] : first->second) {
      const auto other = second->second.find(phase);
      if (other == second->second.end() || !story.closed.has_value() ||
          !other->second.closed.has_value())
        continue;
      const Digest &model = story.closed->model, &is = other->second.closed->model;
      if (!model.IsZero() && !is.IsZero() && model != is)
        return Parting{
            .round = round.value, .stage = Stage::kModel, .what = "it ends with another model"};
    }
    return std::nullopt;
  }

  // Rows that a run must have. What they said cannot be compared.
  std::optional<Parting> InLostRows() const {
    if (!a_.is_run || !b_.is_run) return std::nullopt;
    std::optional<Parting> parting;
    const std::vector<RoundSpan> first = a_.RoundsWithoutRow(), second = b_.RoundsWithoutRow();
    for (const auto& [which, lost] : {std::pair("first", &first), std::pair("second", &second)}) {
      if (lost->empty()) continue;
      const std::string what =
          absl::StrCat("metrics.jsonl of the ", which, " has no row of ", RoundsText(*lost));
      if (!parting.has_value()) {
        parting = Parting{.round = lost->front().first, .stage = Stage::kRows, .what = what};
      } else {
        parting->round = std::min(parting->round, lost->front().first);
        absl::StrAppend(&parting->what, ", ", what);
      }
    }
    return parting;
  }

  std::optional<Parting> AtTheEnd(uint32_t rounds) const {
    if (a_.rounds() != b_.rounds()) {
      return Parting{.round = rounds + 1,
                     .stage = Stage::kEnd,
                     .what = absl::StrCat("the first has ", Counted(a_.rounds(), "round"),
                                          ", the second ", b_.rounds())};
    }
    const auto differ = [](const std::string& a, const std::string& b) {
      return !a.empty() && !b.empty() && a != b;
    };
    if (exact() && differ(a_.model_digest, b_.model_digest))
      return Parting{.round = rounds, .stage = Stage::kModel, .what = "it ends with another model"};
    if (exact() && differ(a_.state_digest, b_.state_digest)) {
      return Parting{.round = rounds,
                     .stage = Stage::kStates,
                     .what = "the clients have other states after it"};
    }
    return std::nullopt;
  }

  // Models of an earlier round may differ where nothing else tells of it.
  std::optional<Parting> WithModels(std::optional<Parting> parting) const {
    if (!exact() && !options_.judge_tensors) return parting;
    for (const ModelDifference& model : models_) {
      if (!(exact() ? model.differs() : model.is_beyond())) continue;
      if (parting.has_value() && parting->round <= model.round) return parting;
      return Parting{.round = model.round,
                     .stage = Stage::kModel,
                     .what = absl::StrCat("the model after it differs (", model.first, ")")};
    }
    return parting;
  }

  const Trace& a_;
  const Trace& b_;
  const DiffOptions options_;
  const std::vector<ModelDifference>& models_;
};

// ---- which client

void FindAmong(const Trace& a, const Trace& b, Parting& parting) {
  std::set<uint64_t> among;
  for (const auto& [place, parts] : a.parts) {
    if (place.first != Round(parting.round)) continue;
    const auto others = b.parts.find(place);
    if (others == b.parts.end()) continue;
    for (const TracedPart& part : parts) {
      const auto same = std::ranges::find(others->second, part.clients, &TracedPart::clients);
      if (same == others->second.end() || same->sums == part.sums) continue;
      for (const ClientId client : part.clients) among.insert(client.value);
    }
    if (!among.empty()) break;  // later phases follow from this one
  }
  parting.among.assign(among.begin(), among.end());
}

absl::Status FindClients(const Trace& a, const Trace& b, Parting& parting) {
  MACAW_ASSIGN_OR_RETURN(const auto first, ClientRows(a, parting.round));
  MACAW_ASSIGN_OR_RETURN(const auto second, ClientRows(b, parting.round));
  std::set<uint64_t> clients;
  for (const auto& [client, row] : first) clients.insert(client);
  for (const auto& [client, row] : second) clients.insert(client);
  for (const uint64_t client : clients) {
    const auto was = first.find(client), is = second.find(client);
    if (was == first.end() || is == second.end()) {
      parting.clients.push_back({.client = client,
                                 .values = {},
                                 .why = was == first.end() ? "only the second has a record"
                                                           : "only the first has a record"});
      continue;
    }
    auto values = Differing(was->second, is->second, /*common=*/false, /*tolerance=*/0);
    if (!values.empty())
      parting.clients.push_back({.client = client, .values = std::move(values), .why = ""});
  }
  return absl::OkStatus();
}

// Whether a stage is about what clients have computed.
bool IsOfClients(Stage stage) {
  return stage == Stage::kTraining || stage == Stage::kModel || stage == Stage::kMetrics;
}

absl::Status NameClients(const Trace& a, const Trace& b, Parting& parting, DiffReport& report) {
  if (!a.is_run || !b.is_run || !IsOfClients(parting.stage)) return absl::OkStatus();
  FindAmong(a, b, parting);
  // Losses are of a client's model before its last step, so updates may differ where they do not.
  if (report.tolerance == 0 && !parting.among.empty() && parting.stage != Stage::kTraining) {
    parting.stage = Stage::kTraining;
    parting.what = "the clients' updates differ, and not the losses that they report";
  }
  std::vector<std::string> without;
  for (const Trace* const trace : {&a, &b}) {
    if (trace->clients_file.empty()) without.push_back(trace->path);
  }
  if (without.empty()) {
    MACAW_RETURN_IF_ERROR(FindClients(a, b, parting));
    if (!parting.clients.empty()) return absl::OkStatus();
    report.unknown.push_back(absl::StrCat(
        "Which client of round ", parting.round,
        " differs: clients.jsonl has the same rows, so no client's losses, rows or steps show it."));
    return absl::OkStatus();
  }
  if (parting.among.size() == 1) return absl::OkStatus();
  report.unknown.push_back(absl::StrCat(
      "Which client of round ", parting.round, " differs: ", absl::StrJoin(without, " and "),
      without.size() == 1 ? " has" : " have",
      " no clients.jsonl. With run.client_records = true a run writes a row for each client and "
      "round, and its result stays the same."));
  return absl::OkStatus();
}

// Which tensor differs first can be seen in models of that round alone.
void SayWhichModelsAreMissing(const Trace& a, const Trace& b, const Parting& parting,
                              DiffReport& report) {
  const bool there = std::ranges::any_of(
      report.models, [&](const ModelDifference& model) { return model.round == parting.round; });
  if (there || !IsOfClients(parting.stage)) return;
  // A table of metrics has no tensors at all.
  for (const Trace* const trace : {&a, &b}) {
    if (!trace->is_run && trace->models.empty()) return;
  }
  if (!a.is_run || !b.is_run) {
    report.unknown.push_back(
        absl::StrCat("Which tensor differs first: not both have a model after round ",
                     parting.round, ". A trace has one as model-", parting.round, ".safetensors."));
    return;
  }
  report.unknown.push_back(absl::StrCat(
      "Which tensor differs first: not both folders have a model after round ", parting.round,
      ". A run keeps models of its last round, its best one and its newest two checkpoints: run "
      "both with --rounds ",
      parting.round, " and compare those (of a schedule over run.rounds, keep its rounds)."));
}

}  // namespace

const char* NameOf(Parting::Stage stage) {
  switch (stage) {
    case Stage::kDraw:
      return "draw";
    case Stage::kStart:
      return "start";
    case Stage::kTraining:
      return "training";
    case Stage::kModel:
      return "model";
    case Stage::kMetrics:
      return "metrics";
    case Stage::kRows:
      return "rows";
    case Stage::kEnd:
      return "end";
    case Stage::kStates:
      return "states";
  }
  return "";
}

bool ModelDifference::differs() const {
  return std::ranges::any_of(tensors, [](const TensorDifference& one) { return one.differs(); });
}
bool ModelDifference::is_beyond() const {
  return std::ranges::any_of(tensors, [](const TensorDifference& one) { return one.is_beyond(); });
}

absl::StatusOr<DiffReport> Diff(const Trace& first, const Trace& second,
                                const DiffOptions& options) {
  DiffReport report;
  report.first = first.path;
  report.second = second.path;
  report.first_is = WhatItIs(first);
  report.second_is = WhatItIs(second);
  report.tolerance = options.tolerance;
  report.models = CompareModels(first, second, options.tolerance);
  MACAW_RETURN_IF_ERROR(CountCommon(first, second, report));
  CompareFacts(first, second, report);
  for (const Trace* const trace : {&first, &second})
    report.notes.insert(report.notes.end(), trace->notes.begin(), trace->notes.end());
  report.parting = Walk(first, second, {}, report.models).First();
  if (options.tolerance > 0) report.beyond = Walk(first, second, options, report.models).First();
  for (const Trace* const trace : {&first, &second}) {
    const std::vector<RoundSpan> lost = trace->RoundsWithoutRow();
    const bool said = report.parting.has_value() && report.parting->stage == Stage::kRows;
    if (!lost.empty() && !said) {
      report.notes.push_back(absl::StrCat(trace->path, "/metrics.jsonl has no row of ",
                                          RoundsText(lost),
                                          ", which were done, so these are not compared"));
    }
    if (trace->is_run && !trace->history.has_value()) {
      report.unknown.push_back(absl::StrCat("Digests of each round's model: ", trace->path,
                                            " has no rounds.log, so only metrics and the models "
                                            "that it has are compared."));
    }
  }
  for (std::optional<Parting>* const parting : {&report.beyond, &report.parting}) {
    if (!parting->has_value()) continue;
    MACAW_RETURN_IF_ERROR(NameClients(first, second, **parting, report));
    SayWhichModelsAreMissing(first, second, **parting, report);
    break;  // they are named once: for the bits only if there is no tolerance, or it holds
  }
  return report;
}

}  // namespace macaw::cli
