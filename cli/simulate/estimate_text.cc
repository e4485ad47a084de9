#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/simulate/estimate.h"
#include "cli/simulate/figures.h"
#include "core/spelling.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string RoundsText(const CostEstimate& estimate) {
  std::string text =
      absl::StrCat(CountText(estimate.rounds), estimate.may_stop ? " at most" : "", "; ",
                   estimate.cohort.least < estimate.cohort.most
                       ? absl::StrCat(CountText(static_cast<double>(estimate.cohort.least)), " or ")
                       : "",
                   CountText(static_cast<double>(estimate.cohort.most)), " of ",
                   CountText(static_cast<double>(estimate.population)), " clients a round, ",
                   CountText(estimate.work.turns), " turns of clients in all");
  if (estimate.work.clients.value_or(0) > 0) {
    absl::StrAppend(&text, ", of ", CountText(static_cast<double>(*estimate.work.clients)),
                    " different ones");
  }
  if (!estimate.work.exact())
    absl::StrAppend(&text, " (from ", CountText(estimate.work.drawn), " of the rounds)");
  return text;
}

std::string StepsText(const CostEstimate& estimate) {
  const double a_turn = estimate.steps / std::max(estimate.work.turns, 1.0);
  // "%.4g" has an exponent from 9999.5 on.
  const std::string text = absl::StrCat(
      CountText(estimate.steps), " in all, ",
      a_turn < 9999.5 ? absl::StrFormat("%.4g", a_turn) : CountText(a_turn), " a turn");
  if (estimate.own_steps || estimate.work.turns == 0) return text;
  return absl::StrFormat("%s (by the plan %d to %d)", text, estimate.work.least_steps,
                         estimate.work.most_steps);
}

// `most`: of a turn, where no value is zero.
std::string MovedText(const CostEstimate::Bytes& bytes, uint32_t rounds,
                      std::optional<uint64_t> most = std::nullopt) {
  const auto dense = static_cast<double>(most.value_or(0));
  return absl::StrCat(
      SizeText(bytes.client), " a turn",
      dense > 1.005 * bytes.client ? absl::StrCat(" (", SizeText(dense), " without zeros)") : "",
      ", ", SizeText(bytes.run / std::max(rounds, 1U)), " a round, ", SizeText(bytes.run),
      " in all");
}

std::string MemoryText(const CostEstimate::Memory& memory) {
  std::string text =
      absl::StrCat("a model ", SizeText(static_cast<double>(memory.model)), "; the server keeps ",
                   SizeText(static_cast<double>(memory.server)), " and a round's sums of up to ",
                   SizeText(static_cast<double>(memory.sums)));
  if (memory.one_out > 0) {
    absl::StrAppend(&text, "; with evaluation.leave_one_out ",
                    SizeText(static_cast<double>(memory.one_out)), " more");
  }
  if (memory.unlearn > 0) {
    absl::StrAppend(&text, "; with evaluation.unlearn ",
                    SizeText(static_cast<double>(memory.unlearn)), " more");
  }
  if (memory.server_peak.has_value()) {
    absl::StrAppend(&text, "; peaks of the trial: server ",
                    SizeText(static_cast<double>(*memory.server_peak)));
    if (memory.worker_peak.has_value())
      absl::StrAppend(&text, ", workers ", SizeText(static_cast<double>(*memory.worker_peak)));
  }
  return text;
}

std::string StatesText(const CostEstimate& estimate) {
  std::string text =
      absl::StrCat(SizeText(static_cast<double>(estimate.states.client)), " a client");
  if (estimate.states.all.has_value()) {
    absl::StrAppend(&text, ", ", SizeText(static_cast<double>(*estimate.states.all)), " for all ",
                    CountText(static_cast<double>(*estimate.work.clients)), " that train");
  }
  return absl::StrCat(text, ", without what the store adds");
}

std::string TimeText(const CostEstimate& estimate) {
  const CostEstimate::Seconds& seconds = *estimate.seconds;
  std::string text =
      absl::StrCat("about ", DurationText(seconds.run), " on ",
                   Counted(estimate.basis.slots, "slot"), " here: ", DurationText(seconds.start),
                   " to begin, ", DurationText(seconds.round), " a round");
  if (!seconds.evaluation.has_value()) return absl::StrCat(text, "; evaluations are not in it");
  return absl::StrCat(text, ", ", CountText(static_cast<double>(seconds.evaluations)),
                      seconds.evaluations == 1 ? " evaluation of " : " evaluations of ",
                      DurationText(*seconds.evaluation));
}

std::string VirtualText(const CostEstimate& estimate) {
  const PlannedWork& work = estimate.work;
  const double seconds = *estimate.virtual_seconds;
  return absl::StrCat("about ", DurationText(seconds), " on the clients' devices, ",
                      DurationText(seconds / std::max(estimate.rounds, 1U)), " a round (from ",
                      work.exact() ? "all" : CountText(work.drawn),
                      work.exact() ? " rounds)" : " of the rounds)");
}

std::string BasisText(const CostEstimate::Basis& basis) {
  if (basis.rounds == 0) return "no round of the trial ended: bytes and time are not known";
  return absl::StrCat("bytes and time are of a trial: ", Counted(basis.rounds, "round"), " of ",
                      Counted(basis.cohort, "client"),
                      basis.steps == 0 ? ""
                                       : absl::StrCat(" with ", Counted(basis.steps, "step"),
                                                      " each, instead of all of theirs"));
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json BytesJson(const std::optional<CostEstimate::Bytes>& bytes, uint32_t rounds) {
  if (!bytes.has_value()) return nullptr;
  return {
      {"client", bytes->client}, {"round", bytes->run / std::max(rounds, 1U)}, {"run", bytes->run}};
}

}  // namespace

std::string EstimateText(const CostEstimate& estimate, double took) {
  std::string text;
  const auto line = [&](absl::string_view what, absl::string_view words) {
    absl::StrAppendFormat(&text, "%-10s %s\n", what, words);
  };
  line("rounds", RoundsText(estimate));
  line("steps", StepsText(estimate));
  const bool trains = estimate.work.turns > 0;
  if (trains && estimate.up.has_value())
    line("bytes up", MovedText(*estimate.up, estimate.rounds, estimate.most_up));
  if (trains && estimate.down.has_value())
    line("bytes down", MovedText(*estimate.down, estimate.rounds));
  if (trains && estimate.base > 0) {
    line("base", absl::StrCat(SizeText(static_cast<double>(estimate.base)),
                              " of frozen tensors, to each device once"));
  }
  line("memory", MemoryText(estimate.memory));
  if (estimate.states.client > 0) line("states", StatesText(estimate));
  if (estimate.seconds.has_value()) line("time", TimeText(estimate));
  if (estimate.virtual_seconds.has_value()) line("devices", VirtualText(estimate));
  if (estimate.epsilon.has_value()) {
    line("privacy", absl::StrFormat("epsilon %.6g at delta %.3g after %s", *estimate.epsilon,
                                    estimate.delta, Counted(estimate.rounds, "round")));
  }
  if (!estimate.learns.empty()) {
    line("cohorts", absl::StrCat("drawn uniformly here: \"", estimate.learns,
                                 "\" follows losses, which only the run has"));
  }
  line("basis", BasisText(estimate.basis));
  line("took", DurationText(took));
  return text;
}

Json EstimateJson(const CostEstimate& estimate, double took) {
  const CostEstimate::Memory& memory = estimate.memory;
  Json json = {
      {"event", "estimate"},
      {"rounds", estimate.rounds},
      {"clients", estimate.population},
      {"cohort", estimate.cohort.most},
      {"least_cohort", estimate.cohort.least},
      {"drawn_uniformly", !estimate.learns.empty()},
      {"turns", estimate.work.turns},
      {"different_clients", OrNull(estimate.work.clients)},
      {"steps",
       {{"run", estimate.steps},
        {"client", estimate.steps / std::max(estimate.work.turns, 1.0)},
        {"least", estimate.work.least_steps},
        {"most", estimate.work.most_steps}}},
      {"bytes_up", BytesJson(estimate.up, estimate.rounds)},
      {"bytes_down", BytesJson(estimate.down, estimate.rounds)},
      {"base", estimate.base},
      {"memory",
       {{"model", memory.model},
        {"server_keeps", memory.server},
        {"sums", memory.sums},
        {"leave_one_out", memory.one_out},
        {"unlearn", memory.unlearn},
        {"server_peak", OrNull(memory.server_peak)},
        {"workers_peak", OrNull(memory.worker_peak)}}},
      {"states", {{"client", estimate.states.client}, {"all", OrNull(estimate.states.all)}}}};
  if (estimate.up.has_value()) json["bytes_up"]["most_client"] = OrNull(estimate.most_up);
  json["seconds"] = nullptr;
  if (estimate.seconds.has_value()) {
    json["seconds"] = {{"run", estimate.seconds->run},
                       {"start", estimate.seconds->start},
                       {"round", estimate.seconds->round},
                       {"evaluation", OrNull(estimate.seconds->evaluation)},
                       {"evaluations", estimate.seconds->evaluations}};
  }
  json["virtual_seconds"] = nullptr;
  if (estimate.virtual_seconds.has_value()) {
    json["virtual_seconds"] = {{"run", *estimate.virtual_seconds},
                               {"round", *estimate.virtual_seconds / std::max(estimate.rounds, 1U)},
                               {"from_rounds", estimate.work.drawn}};
  }
  json["privacy"] = nullptr;
  if (estimate.epsilon.has_value())
    json["privacy"] = {{"epsilon", *estimate.epsilon}, {"delta", estimate.delta}};
  json["trial"] = {{"rounds", estimate.basis.rounds},
                   {"cohort", estimate.basis.cohort},
                   {"turns", estimate.basis.turns},
                   {"steps", estimate.basis.steps},
                   {"slots", estimate.basis.slots}};
  json["took"] = took;
  return json;
}

}  // namespace macaw::cli
