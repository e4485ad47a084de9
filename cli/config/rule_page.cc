#include "cli/config/rule_page.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/config/writer.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using algorithms::Description;
using algorithms::ParameterSpec;
using algorithms::Registry;
using algorithms::Schema;

// The schema of an example run: the defaults, on a network with a layer for every rule.
absl::StatusOr<Schema> ExampleSchema(const Registry& registry, const Description& rule) {
  algorithms::Setup setup;
  MACAW_ASSIGN_OR_RETURN(setup.config, registry.Complete({rule.name, {}}));
  MACAW_ASSIGN_OR_RETURN(
      setup.layout,
      ParameterLayout::Make({{.name = "bn.weight", .shape = {1}},
                             {.name = "fc.weight", .shape = {1}},
                             {.name = "bn.running_mean", .shape = {1}, .group = Group::kBuffer}},
                            DType::kF32));
  setup.cohort.size = 10;
  setup.clients = 100;
  setup.total_weight = 1000;
  return algorithms::SchemaOf(rule, setup);
}

const char* ReductionName(aggregation::Reduction reduction) {
  constexpr const char* kNames[] = {"mean weighted by cohort.weight", "plain mean",
                                    "sum over a fixed divisor", "largest", "each client's own"};
  return kNames[static_cast<size_t>(reduction)];
}

// ", in phase 0 and 1"; nothing if that is in all.
std::string InPhases(const std::vector<Phase>& phases) {
  if (phases.empty()) return "";
  const auto append = [](std::string* out, Phase phase) { absl::StrAppend(out, phase.value); };
  return absl::StrCat(", in phase ", absl::StrJoin(phases, " and ", append));
}

// What travels and what stays, under one heading: names, each with a word on it.
struct Listing {
  std::string heading;
  std::vector<std::pair<std::string, std::string>> items;
};

// Those that the rule has. None if the rule is not for the example run.
std::vector<Listing> ListingsOf(const Registry& registry, const Description& rule) {
  const absl::StatusOr<Schema> schema = ExampleSchema(registry, rule);
  if (!schema.ok()) return {};
  Listing down{"To the clients", {}}, up{"To the server", {}},
      metrics{"Columns of metrics.jsonl", {}}, kept{"Kept by each client", {}};
  for (const algorithms::DownChannel& channel : schema->down)
    down.items.emplace_back(channel.name,
                            absl::StrCat("the same for all", InPhases(channel.phases)));
  for (const aggregation::ChannelSpec& channel : schema->up) {
    up.items.emplace_back(channel.name,
                          absl::StrCat(ReductionName(channel.reduction), InPhases(channel.phases)));
  }
  for (const algorithms::MetricSpec& metric : schema->metrics) {
    const char* from = metric.reduction ? ReductionName(*metric.reduction) : "the server's";
    metrics.items.emplace_back(absl::StrCat("rule_", metric.name),
                               absl::StrCat(from, InPhases(metric.phases)));
  }
  for (const algorithms::NamedLayout& item : schema->state)
    kept.items.emplace_back(item.name, "from one of its turns to the next");
  std::vector<Listing> listings;
  for (Listing* listing : {&down, &up, &metrics, &kept})
    if (!listing->items.empty()) listings.push_back(std::move(*listing));
  return listings;
}

// The rule's own remarks, and what its description says of other sections.
std::string RemarksOf(const Registry& registry, const Description& rule) {
  const absl::StatusOr<Schema> schema = ExampleSchema(registry, rule);
  if (!schema.ok() || schema->state.empty() || rule.has_independent_state ||
      rule.state_follows_sent)
    return rule.remarks;
  return absl::StrCat(
      rule.remarks, rule.remarks.empty() ? "" : " ",
      "Not with [privacy] or [update]: what a client keeps mirrors what it sends, of "
      "which clipping or a codec takes a part away, and the run would end at a wrong "
      "model.");
}

// Wraps a text into lines of at most 100 bytes.
std::string Wrapped(absl::string_view text) {
  std::string lines;
  size_t used = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool fits = used == 0 || used + 1 + word.size() <= 100;
    absl::StrAppend(&lines, used == 0 ? "" : fits ? " " : "\n", word);
    used = fits && used > 0 ? used + 1 + word.size() : word.size();
  }
  return lines;
}

std::string Indented(absl::string_view text) {
  return absl::StrCat("  ", absl::StrReplaceAll(text, {{"\n", "\n  "}}));
}

// "; needs base = \"adam\"", or nothing.
std::string NeedsOf(const ParameterSpec& spec) {
  const std::string needs = settings::NeedsText(spec.needs);
  return needs.empty() ? "" : absl::StrCat("; needs ", needs);
}

std::string ParameterLine(const ParameterSpec& spec) {
  return absl::StrFormat(
      "%-34s # %s%s%s\n", absl::StrCat(spec.name, " = ", ToToml(spec.default_value)), spec.help,
      spec.choices.empty() ? "" : absl::StrCat(" (", absl::StrJoin(spec.choices, " | "), ")"),
      NeedsOf(spec));
}

// A cell of a table.
std::string Cell(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"*", "\\*"}});
}

std::string Sentence(std::string text) {
  if (!text.empty()) text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  return absl::StrCat(text, ".");
}

constexpr char kMadeBy[] = "<!-- Written by `macaw algorithms --pages docs/rules`. -->\n";

std::string RulePage(const Registry& registry, const Description& rule) {
  std::string page = absl::StrCat("# ", rule.name, "\n", kMadeBy, "\n", Sentence(rule.summary),
                                  "\n\n*", rule.paper, "*\n");
  if (!rule.formula.empty())
    absl::StrAppend(&page, "\n```text\n", rule.formula, "\n```\n[Symbols](README.md#symbols)\n");
  absl::StrAppend(&page, "\n## Use\n```toml\nalgorithm.name = \"", rule.name, "\"\n```\n");
  if (!rule.parameters.empty()) {
    absl::StrAppend(&page, "\n| key of `[algorithm.", rule.name,
                    "]` | default | meaning | takes |\n|---|---|---|---|\n");
  }
  for (const ParameterSpec& spec : rule.parameters) {
    absl::StrAppend(&page, "| `", spec.name, "` | `", Cell(ToToml(spec.default_value)), "` | ",
                    Cell(spec.help), " | ", Cell(absl::StrCat(RangeText(spec), NeedsOf(spec))),
                    " |\n");
  }
  const std::vector<Listing> listings = ListingsOf(registry, rule);
  if (!listings.empty()) absl::StrAppend(&page, "\n## What travels, what stays\n");
  for (const Listing& listing : listings) {
    absl::StrAppend(&page, "- ", listing.heading, ":\n");
    for (const auto& [name, word] : listing.items)
      absl::StrAppend(&page, "  - `", name, "`: ", word, "\n");
  }
  const std::string remarks = RemarksOf(registry, rule);
  if (!remarks.empty())
    absl::StrAppend(&page, "\n## Before you choose it\n", Wrapped(remarks), "\n");
  return page;
}

}  // namespace

std::string RuleText(const Registry& registry, const Description& rule) {
  std::string text = absl::StrCat(rule.name, ": ", rule.summary, "\n", rule.paper, "\n");
  if (!rule.formula.empty()) {
    absl::StrAppend(&text, "\n", Indented(rule.formula), "\n\n",
                    Wrapped(algorithms::kFormulaSymbols), "\n");
  }
  if (!rule.parameters.empty()) absl::StrAppend(&text, "\n[algorithm.", rule.name, "]\n");
  for (const ParameterSpec& spec : rule.parameters) text += ParameterLine(spec);
  const std::vector<Listing> listings = ListingsOf(registry, rule);
  if (!listings.empty()) text += "\n";
  for (const Listing& listing : listings) {
    absl::StrAppend(&text, listing.heading, "\n");
    for (const auto& [name, word] : listing.items)
      absl::StrAppend(&text, absl::StrFormat("  %-26s %s\n", name, word));
  }
  const std::string remarks = RemarksOf(registry, rule);
  if (!remarks.empty()) absl::StrAppend(&text, "\n", Wrapped(remarks), "\n");
  return text;
}

std::map<std::string, std::string> RulePages(const Registry& registry) {
  std::map<std::string, std::string> pages;
  std::string index = absl::StrCat(
      "# Rules\n", kMadeBy,
      "\n`macaw algorithms NAME` prints the same; how to write one: [algorithms](../../algorithms/README.md).\n"
      "\n| rule | what it does |\n|---|---|\n");
  for (const Description* rule : registry.All()) {
    pages[rule->name + ".md"] = RulePage(registry, *rule);
    absl::StrAppend(&index, "| [", rule->name, "](", rule->name, ".md) | ", Cell(rule->summary),
                    " |\n");
  }
  absl::StrAppend(&index, "\n## Symbols\n", Wrapped(algorithms::kFormulaSymbols), "\n");
  pages["README.md"] = index;
  return pages;
}

}  // namespace macaw::cli
