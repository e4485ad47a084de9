#include "algorithms/levels.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <variant>

#include "absl/numeric/int128.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "algorithms/api/vector_math.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

// Names the stream of a client's own level, which is drawn once.
constexpr uint64_t kLevelOfClient = 0x6c6576656c;

// "1 0.5 0.25", with spaces or commas.
absl::StatusOr<std::vector<double>> NumbersIn(absl::string_view text) {
  std::vector<double> numbers;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
    double number = 0;
    if (!absl::SimpleAtod(word, &number) || !std::isfinite(number)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", word, "\" is no number; write numbers with spaces between them"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> RatesIn(absl::string_view text) {
  MACAW_ASSIGN_OR_RETURN(std::vector<double> rates, NumbersIn(text));
  if (rates.empty()) return absl::InvalidArgumentError("name at least one rate, such as \"1 0.5\"");
  for (const double rate : rates) {
    if (!(rate > 0 && rate <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a rate is above 0 and at most 1, not ", rate));
    }
  }
  if (std::ranges::adjacent_find(rates, std::less_equal<>()) != rates.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rates fall from the widest on, and \"", text, "\" does not"));
  }
  return rates;
}

absl::StatusOr<std::vector<double>> SharesIn(absl::string_view text) {
  MACAW_ASSIGN_OR_RETURN(std::vector<double> shares, NumbersIn(text));
  for (const double share : shares) {
    if (!(share > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("a share is above 0, not ", share));
    }
  }
  return shares;
}

template <typename Parse>
auto Checked(const Parse& parse) {
  return [parse](const ParameterValue& value) -> absl::Status {
    return parse(std::get<std::string>(value)).status();
  };
}

}  // namespace

std::vector<ParameterSpec> Levels::Parameters(absl::string_view rule) {
  const auto lists = [](const AlgorithmConfig& config) {
    const auto assign = config.parameters.find("assign");
    return assign != config.parameters.end() &&
           assign->second == ParameterValue(std::string("list"));
  };
  const std::string key = absl::StrCat("algorithm.", rule, ".assign");
  return {
      {.name = "rates",
       .default_value = "1 0.5 0.25 0.125 0.0625",
       .help = "the widths that clients train, the widest first: of a hidden layer's n channels "
               "the first ⌈rate·n⌉",
       .check = Checked(RatesIn)},
      {.name = "assign",
       .default_value = "fix",
       .help = "who has which rate: fix, by number, the first clients the widest; once, drawn for "
               "each client; dynamic, drawn for each client in each round; list, as each says",
       .choices = {"fix", "once", "dynamic", "list"}},
      {.name = "shares",
       .default_value = "",
       .help = "how many clients have each rate, in proportion: \"4 1 1\"; \"\": as many each",
       .check = Checked(SharesIn),
       .needs = {{[lists](const AlgorithmConfig& config) { return !lists(config); },
                  absl::StrCat(key, " other than \"list\"")}}},
      {.name = "each",
       .default_value = "",
       .help = "the rate of each client, in the order of their numbers: \"1 0.5 0.5\"",
       .check = Checked(NumbersIn),
       .needs = {{lists, absl::StrCat(key, " = \"list\"")}}}};
}

bool Levels::ByNumber(const Setup& setup) {
  const std::string assign = setup.Get<std::string>("assign");
  return assign == "fix" || assign == "list";
}

absl::StatusOr<Levels> Levels::Of(const Setup& setup) {
  Levels levels;
  MACAW_ASSIGN_OR_RETURN(levels.rates_, RatesIn(setup.Get<std::string>("rates")));
  MACAW_ASSIGN_OR_RETURN(levels.shares_, SharesIn(setup.Get<std::string>("shares")));
  if (levels.shares_.empty()) levels.shares_.assign(levels.rates_.size(), 1);
  if (levels.shares_.size() != levels.rates_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("shares has ", levels.shares_.size(),
                                                   " numbers, and rates has ", levels.rates_.size(),
                                                   ": name a share for each rate"));
  }
  const std::string assign = setup.Get<std::string>("assign");
  levels.assign_ = assign == "fix"    ? Assign::kFix
                   : assign == "once" ? Assign::kOnce
                   : assign == "list" ? Assign::kList
                                      : Assign::kDynamic;
  if (levels.assign_ == Assign::kList) MACAW_RETURN_IF_ERROR(levels.List(setup));
  if (levels.assign_ == Assign::kFix) MACAW_RETURN_IF_ERROR(levels.Fix(setup.clients));
  return levels;
}

// For shares s of N clients, level l ends at client ⌊N·(s_1 + … + s_l) / Σs⌋. Where Σs divides N,
// these are the levels of the authors' code, which counts s_l·⌊N/Σs⌋ and gives the last level all
// that are left over.
absl::Status Levels::Fix(uint64_t clients) {
  absl::uint128 sum = 0;
  for (const double share : shares_) {
    if (share != std::floor(share) || share > 1e9) {
      return absl::InvalidArgumentError(absl::StrCat(
          "assign = \"fix\" counts clients, and shares has ", share, ": use whole numbers"));
    }
    sum += static_cast<uint64_t>(share);
  }
  absl::uint128 shares = 0;
  for (size_t level = 0; level < count(); ++level) {
    shares += static_cast<uint64_t>(shares_[level]);
    const auto end = static_cast<uint64_t>(clients * shares / sum);
    if (clients > 0 && end == (ends_.empty() ? 0 : ends_.back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("assign = \"fix\" divides ", clients, " clients among ", count(),
                       " rates, and none is left for the rate ", rates_[level],
                       ": name fewer rates or other shares, or set assign = \"once\""));
    }
    ends_.push_back(end);
  }
  return absl::OkStatus();
}

absl::Status Levels::List(const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<double> each, NumbersIn(setup.Get<std::string>("each")));
  if (each.empty() || (setup.clients > 0 && each.size() != setup.clients)) {
    return absl::InvalidArgumentError(
        absl::StrCat("each has ", each.size(), " rates for ", setup.clients,
                     " clients: name one for each, in the order of their numbers"));
  }
  for (const double rate : each) {
    const auto level = std::ranges::find(rates_, rate);
    if (level == rates_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("each has a rate of ", rate, ", which is none of rates"));
    }
    each_.push_back(static_cast<size_t>(level - rates_.begin()));
  }
  return absl::OkStatus();
}

size_t Levels::Drawn(RandomStream stream) const {
  double sum = 0;
  for (const double share : shares_) sum += share;
  double left = stream.Uniform() * sum;
  for (size_t level = 0; level + 1 < count(); ++level) {
    if (left < shares_[level]) return level;
    left -= shares_[level];
  }
  return count() - 1;
}

absl::Status Levels::Has(ClientId client) const {
  const uint64_t clients = assign_ == Assign::kFix    ? ends_.back()
                           : assign_ == Assign::kList ? each_.size()
                                                      : client.value + 1;
  if (client.value < clients) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("client ", client.value,
                                                 " has no rate: assign gives one to ", clients,
                                                 " clients, numbered from 0"));
}

size_t Levels::LevelOf(const ClientContext& context) const {
  switch (assign_) {
    case Assign::kDynamic:
      return Drawn(context.Random("level"));
    case Assign::kOnce:
      return Drawn(RandomStream({.seed = context.seed,
                                 .purpose = Purpose::kClientRule,
                                 .client = context.client,
                                 .extra = kLevelOfClient}));
    case Assign::kList:
      return each_[context.client.value];
    case Assign::kFix:
      break;
  }
  const auto end = std::ranges::upper_bound(ends_, context.client.value);
  return static_cast<size_t>(end - ends_.begin());
}

absl::StatusOr<SliceLayouts> SliceLayouts::Of(const Setup& setup, const Levels& levels) {
  SliceLayouts layouts;
  const bool known = !setup.model.name.empty();
  models::ModelSpec spec;
  if (known) {
    MACAW_ASSIGN_OR_RETURN(spec, models::BuildSpec(setup.model, setup.layout->dtype()));
    if (!SameLayout(spec.layout.get(), setup.layout.get())) {
      return absl::InvalidArgumentError(
          "model.frozen, trained or adapters leave tensors out, and a narrower model has parts of "
          "all: take them out");
    }
    if (!spec.is_script()) {
      const auto [first, count] = spec.tensors[models::OutputLayerOf(spec)];
      for (size_t i = 0; i < count; ++i) layouts.output.push_back(first + i);
    }
    layouts.has_group_norm = std::ranges::any_of(spec.layers, [](const models::Layer& layer) {
      return std::holds_alternative<models::GroupNorm>(layer);
    });
  }
  for (size_t level = 0; level < levels.count(); ++level) {
    if (levels.rate(level) == 1) {
      layouts.of.push_back(setup.layout);
      continue;
    }
    if (!known) return absl::InvalidArgumentError("narrower models need the model's layers");
    MACAW_ASSIGN_OR_RETURN(const models::ModelSpec slice,
                           models::SliceOf(spec, {.rate = levels.rate(level)}));
    layouts.of.push_back(slice.layout);
  }
  return layouts;
}

}  // namespace macaw::algorithms
