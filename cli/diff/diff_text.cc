#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/diff/diff.h"
#include "cli/results/text.h"
#include "core/one_line.h"
#include "core/spelling.h"

namespace macaw::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostShown = 8;

std::string NumberOf(const std::optional<double>& value) {
  return value.has_value() ? absl::StrFormat("%.9g", *value) : "-";
}

std::string ValuesText(const std::vector<ValueDifference>& values) {
  std::vector<std::string> parts;
  for (const ValueDifference& value : values) {
    if (parts.size() == kMostShown) {
      parts.push_back(absl::StrCat(values.size() - kMostShown, " more"));
      break;
    }
    parts.push_back(
        absl::StrCat(value.name, " ", NumberOf(value.first), " | ", NumberOf(value.second)));
  }
  return absl::StrJoin(parts, ", ");
}

void Line(std::string& text, absl::string_view what, absl::string_view rest) {
  // Names come from files of others.
  absl::StrAppendFormat(&text, "%-10s %s\n", what, OneLine(rest));
}

void PartingLines(const Parting& parting, absl::string_view what, std::string& text) {
  Line(text, what, absl::StrCat("in round ", parting.round, ": ", parting.what));
  if (!parting.columns.empty()) Line(text, "metrics", ValuesText(parting.columns));
  for (size_t i = 0; i < std::min(kMostShown, parting.clients.size()); ++i) {
    const ClientDifference& client = parting.clients[i];
    Line(text, i == 0 ? "clients" : "",
         absl::StrCat(client.client, ": ",
                      client.why.empty() ? ValuesText(client.values) : client.why));
  }
  if (parting.clients.size() > kMostShown)
    Line(text, "", absl::StrCat("and ", parting.clients.size() - kMostShown, " more"));
  if (parting.among.size() == 1) {
    Line(text, "sums", absl::StrCat("that of client ", parting.among.front(), " alone differs"));
  } else if (!parting.among.empty()) {
    std::vector<uint64_t> shown(parting.among.begin(),
                                parting.among.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                            kMostShown, parting.among.size())));
    Line(text, "sums",
         absl::StrCat("differ that are of clients ", absl::StrJoin(shown, ", "),
                      parting.among.size() > shown.size()
                          ? absl::StrCat(" and ", parting.among.size() - shown.size(), " more")
                          : ""));
  }
}

void FactLines(absl::string_view what, const std::vector<FactDifference>& facts,
               std::string& text) {
  bool first = true;
  for (const FactDifference& fact : facts) {
    Line(text, first ? what : "",
         absl::StrCat(fact.name, " ", fact.first.empty() ? "(not given)" : fact.first, " | ",
                      fact.second.empty() ? "(not given)" : fact.second));
    first = false;
  }
}

std::string SizeText(double size) { return size == 0 ? "0" : absl::StrFormat("%.3g", size); }

void ModelLines(const ModelDifference& model, std::string& text) {
  const auto differing = std::ranges::count_if(
      model.tensors, [](const TensorDifference& one) { return one.differs(); });
  const std::string files =
      model.first == model.second ? model.first : absl::StrCat(model.first, " and ", model.second);
  Line(text, "model",
       absl::StrCat("after round ", model.round, " (", files, "): ",
                    differing == 0
                        ? absl::StrCat("the same, ", Counted(model.tensors.size(), "tensor"))
                        : absl::StrCat(differing, " of ", Counted(model.tensors.size(), "tensor"),
                                       differing == 1 ? " differs" : " differ")));
  if (differing == 0) return;
  std::vector<std::vector<std::string>> lines = {
      {"tensor", "values", "differ", "max |difference|", "max ulps"}};
  for (const TensorDifference& one : model.tensors) {
    if (!one.differs()) continue;
    if (!one.why.empty()) {
      lines.push_back({one.name, absl::StrCat(one.values), one.why, "", ""});
      continue;
    }
    lines.push_back(
        {one.name, absl::StrCat(one.values), absl::StrCat(one.differing),
         absl::StrCat(SizeText(one.largest),
                      one.not_finite > 0 ? absl::StrCat(", ", one.not_finite, " not finite") : ""),
         one.ulps.has_value() ? absl::StrCat(*one.ulps) : "-"});
  }
  const std::string table = AlignedText(lines);
  for (size_t at = 0; at < table.size();) {
    const size_t end = table.find('\n', at);
    const std::string line = table.substr(at, end - at);
    absl::StrAppend(&text, "           ", OneLine(line.substr(0, line.find_last_not_of(' ') + 1)),
                    "\n");
    at = end + 1;
  }
}

OrderedJson NumberJson(const std::optional<double>& value) {
  return value.has_value() && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson ValuesJson(const std::vector<ValueDifference>& values) {
  OrderedJson all = OrderedJson::array();
  for (const ValueDifference& value : values) {
    all.push_back({{"name", value.name},
                   {"first", NumberJson(value.first)},
                   {"second", NumberJson(value.second)}});
  }
  return all;
}

OrderedJson PartingJson(const std::optional<Parting>& parting) {
  if (!parting.has_value()) return nullptr;
  OrderedJson clients = OrderedJson::array();
  for (const ClientDifference& client : parting->clients) {
    clients.push_back(
        {{"client", client.client}, {"why", client.why}, {"values", ValuesJson(client.values)}});
  }
  return {{"round", parting->round},       {"stage", NameOf(parting->stage)},
          {"what", parting->what},         {"metrics", ValuesJson(parting->columns)},
          {"clients", std::move(clients)}, {"sums_of", parting->among}};
}

OrderedJson FactsJson(const std::vector<FactDifference>& facts) {
  OrderedJson all = OrderedJson::array();
  for (const FactDifference& fact : facts)
    all.push_back({{"name", fact.name}, {"first", fact.first}, {"second", fact.second}});
  return all;
}

OrderedJson ModelsJson(const std::vector<ModelDifference>& models) {
  OrderedJson all = OrderedJson::array();
  for (const ModelDifference& model : models) {
    OrderedJson tensors = OrderedJson::array();
    for (const TensorDifference& one : model.tensors) {
      tensors.push_back({{"name", one.name},
                         {"dtype", one.dtype},
                         {"why", one.why},
                         {"values", one.values},
                         {"differing", one.differing},
                         {"beyond", one.beyond},
                         {"max_difference", one.largest},
                         {"max_ulps", one.ulps.has_value() ? OrderedJson(*one.ulps) : nullptr},
                         {"not_finite", one.not_finite}});
    }
    all.push_back({{"round", model.round},
                   {"first", model.first},
                   {"second", model.second},
                   {"tensors", std::move(tensors)}});
  }
  return all;
}

}  // namespace

std::string DiffText(const DiffReport& report) {
  std::string text;
  Line(text, "first", absl::StrCat(report.first, " (", report.first_is, ")"));
  Line(text, "second", absl::StrCat(report.second, " (", report.second_is, ")"));
  const std::string common =
      absl::StrCat(Counted(report.rounds, "round"), ", ", Counted(report.columns, "column"),
                   " of metrics, ", Counted(report.models.size(), "model"));
  if (!report.parting.has_value()) {
    Line(text, "same", common);
  } else if (report.tolerance == 0) {
    PartingLines(*report.parting, "differ", text);
  } else if (report.same()) {
    Line(text, "same", absl::StrFormat("within %g: %s", report.tolerance, common));
    PartingLines(*report.parting, "bits part", text);
  } else {
    PartingLines(*report.beyond, "differ", text);
    if (report.parting->round != report.beyond->round)
      Line(text, "bits part", absl::StrCat("in round ", report.parting->round));
  }
  FactLines("settings", report.settings, text);
  FactLines("facts", report.facts, text);
  if (!report.elsewhere.empty()) {
    std::vector<std::string> keys;
    for (const FactDifference& fact : report.elsewhere) keys.push_back(fact.name);
    Line(text, "no matter", absl::StrJoin(keys, ", "));
  }
  for (const ModelDifference& model : report.models) ModelLines(model, text);
  for (const std::string& unknown : report.unknown) Line(text, "unknown", unknown);
  for (const std::string& note : report.notes) Line(text, "note", note);
  return text;
}

std::string DiffJson(const DiffReport& report) {
  const OrderedJson json = {{"same", report.same()},
                            {"tolerance", report.tolerance},
                            {"first", report.first},
                            {"second", report.second},
                            {"rounds", report.rounds},
                            {"columns", report.columns},
                            {"parting", PartingJson(report.parting)},
                            {"beyond_tolerance", PartingJson(report.beyond)},
                            {"settings", FactsJson(report.settings)},
                            {"facts", FactsJson(report.facts)},
                            {"without_effect", FactsJson(report.elsewhere)},
                            {"models", ModelsJson(report.models)},
                            {"unknown", report.unknown},
                            {"notes", report.notes}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace macaw::cli
