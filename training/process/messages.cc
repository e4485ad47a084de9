#include "training/process/messages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/peer/json.h"
#include "core/status.h"
#include "core/utf8.h"
#include "training/api/local_json.h"
#include "training/stage_inputs.h"

namespace macaw::training::process {
namespace {

constexpr size_t kMostWords = 900;  // of each part of an error

using peer::Json;
using peer::LineOf;

constexpr uint64_t kMostSteps = 100'000'000;  // of a turn

const char* NameOf(data::Split split) {
  switch (split) {
    case data::Split::kValidation:
      return "validation";
    case data::Split::kTest:
      return "test";
    case data::Split::kTrain:
      break;
  }
  return "train";
}

absl::Status Wrong(absl::string_view line, absl::string_view why) {
  return peer::NotUnderstood(line, kPeerName, why);
}

// An object with this number under "id".
absl::StatusOr<Json> ObjectIn(absl::string_view line, uint64_t id) {
  MACAW_ASSIGN_OR_RETURN(Json json, peer::ObjectIn(line, kPeerName));
  const auto found = json.find("id");
  if (found == json.end() || !found->is_number_unsigned() || found->get<uint64_t>() != id)
    return Wrong(line, absl::StrCat("the id of the question is ", id));
  return json;
}

std::optional<uint64_t> CountIn(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<uint64_t>();
}

// A number from 0 on, or null, which stands for NaN, under a key that may be left out.
absl::StatusOr<std::optional<double>> RateIn(const Json& json, absl::string_view line,
                                             const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return std::nullopt;
  if (found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  const double rate = found->is_number() ? found->get<double>() : -1;
  if (!(rate >= 0) || std::isinf(rate))
    return Wrong(line, absl::StrCat("\"", key, "\" is a number from 0 on, or null"));
  return rate;
}

// The beginning or the end of a text, which may be long.
std::string Head(const std::string& text) {
  return text.size() <= kMostWords ? text : absl::StrCat(HeadOf(text, kMostWords), " ...");
}
std::string Tail(const std::string& text) {
  return text.size() <= kMostWords ? text : absl::StrCat("... ", TailOf(text, kMostWords));
}

// {"kind": "ValueError", "message": "...", "where": "train.py:12", "trace": ["...", "..."]}
std::string ErrorIn(const Json& error) {
  const auto text = [&](const char* key) {
    const auto found = error.is_object() ? error.find(key) : error.end();
    return found != error.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string kind = Head(text("kind")), message = Head(text("message")),
                    where = Head(text("where"));
  if (kind.empty() && message.empty()) return "an error without words";
  std::string words = absl::StrCat(kind, kind.empty() || message.empty() ? "" : ": ", message,
                                   where.empty() ? "" : absl::StrCat(" (", where, ")"));
  std::string trace;
  if (error.is_object() && error.contains("trace") && error["trace"].is_array()) {
    for (const Json& line : error["trace"]) {
      if (line.is_string())
        absl::StrAppend(&trace, trace.empty() ? "" : " | ", line.get<std::string>());
    }
  }
  if (!trace.empty()) absl::StrAppend(&words, "; trace: ", Tail(trace));
  return words;
}

// The sums under "sums", by the names of the task. JSON has no NaN: null stands for it. `rows`: the
// number of examples where they are left out and may be; all but the losses may be, then, and are
// NaN.
absl::StatusOr<MetricSums> SumsIn(const Json& json, absl::string_view line, TaskKind task,
                                  std::optional<uint64_t> rows) {
  const MetricSchema& schema = SchemaFor(task);
  const auto found = json.find("sums");
  if (found == json.end() || !found->is_object()) return Wrong(line, "\"sums\" is missing");
  MetricSums sums(schema.sums.size(), std::numeric_limits<double>::quiet_NaN());
  if (rows.has_value()) sums[0] = static_cast<double>(*rows);
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto sum = found->find(schema.sums[i]);
    if (sum == found->end()) {
      if (rows.has_value() && i != 1) continue;
      return Wrong(line, absl::StrCat("sums has no \"", schema.sums[i], "\""));
    }
    if (!sum->is_number() && !sum->is_null())
      return Wrong(line, absl::StrCat("\"", schema.sums[i], "\" is not a number"));
    sums[i] = sum->is_null() ? std::numeric_limits<double>::quiet_NaN() : sum->get<double>();
  }
  MetricSums said = sums;
  if (rows.has_value())
    std::ranges::replace_if(
        said, [](double sum) { return std::isnan(sum); }, 0);
  if (!CountsFit(schema, said)) return Wrong(line, "no rows can give these sums");
  return sums;
}

// What went wrong, if the program says that.
std::optional<Answer> FailureIn(const Json& json) {
  const auto error = json.find("error");
  if (error == json.end()) return std::nullopt;
  Answer answer{.error = ErrorIn(*error)};
  const auto fatal = error->is_object() ? error->find("fatal") : error->end();
  answer.fatal = error->is_object() && fatal != error->end() && *fatal == true;
  return answer;
}

Json ToJson(const SharedRows::Place& place) {
  Json json = {{"rows", place.rows},
               {"bytes", place.bytes},
               {"features", place.features},
               {"labels", place.labels},
               {"outputs", place.outputs}};
  json["lengths"] = place.lengths.has_value() ? Json(*place.lengths) : Json(nullptr);
  return json;
}

}  // namespace

std::string HelloLine(const TrainerSetup& setup, const peer::SharedVectors& memory,
                      const SharedRows* rows) {
  const ParameterLayout& layout = *setup.spec.layout;
  Json tensors = Json::array();
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.push_back({{"name", entry.name},
                       {"shape", entry.shape},
                       {"offset", entry.offset * SizeOf(layout.dtype())},
                       {"buffer", entry.group == Group::kBuffer}});
  }
  Json given = nullptr;
  if (rows != nullptr) {
    const std::string dtype(Name(layout.dtype()));
    given = {{"features", rows->tokens() ? "int32" : dtype},
             {"labels", rows->targets() ? dtype : "int64"}};
  }
  return LineOf({{"macaw", kProtocol},
                 {"rows", std::move(given)},
                 {"model", setup.spec.name},
                 {"input_shape", setup.spec.input_shape},
                 {"outputs", setup.spec.outputs},
                 {"task", Name(setup.task)},
                 {"sums", SchemaFor(setup.task).sums},
                 {"dtype", std::string(Name(layout.dtype()))},
                 {"layout", std::move(tensors)},
                 {"memory",
                  {{"bytes", memory.bytes()},
                   {"start", memory.OffsetOf(kStart)},
                   {"end", memory.OffsetOf(kEnd)},
                   {"correction", memory.OffsetOf(kCorrection)},
                   {"anchor", memory.OffsetOf(kAnchor)}}},
                 {"local", training::ToJson(setup.local)}});
}

absl::StatusOr<Ready> ParseReady(absl::string_view line) {
  MACAW_ASSIGN_OR_RETURN(const Json json, peer::ObjectIn(line, kPeerName));
  if (json.contains("error")) return absl::AbortedError(ErrorIn(json["error"]));
  const std::optional<uint64_t> protocol = CountIn(json, "ready");
  if (protocol != kProtocol)
    return Wrong(line, absl::StrCat("\"ready\" is the protocol's version, here ", kProtocol));
  Ready ready;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string() || name->get<std::string>().empty())
    return Wrong(line, "\"name\" is missing");
  ready.name = name->get<std::string>();
  for (const auto& [key, flag] :
       {std::pair("corrections", &ready.corrections), std::pair("evaluates", &ready.evaluates)}) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_boolean())
      return Wrong(line, absl::StrCat("\"", key, "\" is true or false"));
    *flag = found->get<bool>();
  }
  const auto outputs = json.find("outputs");
  ready.outputs = outputs != json.end() && *outputs == true;
  const auto in_place = json.find("in_place");
  ready.in_place = in_place != json.end() && *in_place == true;
  return ready;
}

std::string TrainLine(uint64_t id, const Stage& stage, size_t number, const ClientTask& task,
                      TurnVector weights, const Place& place) {
  const AffineCorrection& correction = stage.correction;
  const data::Rows& rows = RowsOf(task, stage.rows);
  Json train = {{"client", task.client.value},
                {"name", task.train.client_name},
                {"round", task.round.value},
                {"phase", task.phase.value},
                {"stage", number},
                {"seed", task.seed},
                {"split", NameOf(stage.rows)},
                {"rows", rows.size()},
                {"local", training::ToJson(stage.local)},
                {"mu", correction.mu},
                {"anchor", correction.anchor.has_value()},
                {"correction", !correction.v.empty()},
                {"in_place", weights == kEnd},
                {"trial", task.trial},
                {"personal", stage.losses == Losses::kPersonal}};
  train["trainable"] = stage.trainable != nullptr ? Json(*stage.trainable) : Json(nullptr);
  if (place.has_value()) train["at"] = ToJson(*place);
  return LineOf({{"id", id}, {"train", std::move(train)}});
}

std::string EvaluateLine(uint64_t id, const data::Rows& rows, uint64_t begin, uint64_t end,
                         const Place& place) {
  Json evaluate = {{"client", rows.noise.client.value},
                   {"name", rows.client_name},
                   {"split", NameOf(rows.noise.split)},
                   {"begin", begin},
                   {"end", end}};
  if (place.has_value()) evaluate["at"] = ToJson(*place);
  return LineOf({{"id", id}, {"evaluate", std::move(evaluate)}});
}

std::string OutputsLine(uint64_t id, const SharedRows::Place& place) {
  return LineOf({{"id", id}, {"outputs", {{"at", ToJson(place)}}}});
}

absl::StatusOr<Answer> ParseTrained(absl::string_view line, uint64_t id, TaskKind task,
                                    bool given) {
  MACAW_ASSIGN_OR_RETURN(const Json json, ObjectIn(line, id));
  if (std::optional<Answer> failure = FailureIn(json)) return *std::move(failure);
  const std::optional<uint64_t> rows = CountIn(json, "rows"), steps = CountIn(json, "steps");
  if (!rows.has_value() || !steps.has_value() || *steps > kMostSteps)
    return Wrong(line, "\"rows\" and \"steps\" are whole numbers");
  Answer answer{.rows = *rows, .steps = *steps};
  MACAW_ASSIGN_OR_RETURN(answer.rate_sum, RateIn(json, line, "rate_sum"));
  MACAW_ASSIGN_OR_RETURN(answer.a_norm1, RateIn(json, line, "a_norm1"));
  if (answer.a_norm1.has_value() && std::isnan(*answer.a_norm1)) answer.rate_sum = answer.a_norm1;
  if (given && !json.contains("sums")) return answer;
  MACAW_ASSIGN_OR_RETURN(answer.sums, SumsIn(json, line, task, rows));
  return answer;
}

absl::StatusOr<Answer> ParseEvaluated(absl::string_view line, uint64_t id, TaskKind task) {
  MACAW_ASSIGN_OR_RETURN(const Json json, ObjectIn(line, id));
  if (std::optional<Answer> failure = FailureIn(json)) return *std::move(failure);
  Answer answer;
  MACAW_ASSIGN_OR_RETURN(answer.sums, SumsIn(json, line, task, std::nullopt));
  // Of no rows a program may say null, and a server takes only 0.
  if (answer.sums[0] == 0)
    std::ranges::replace_if(
        answer.sums, [](double sum) { return std::isnan(sum); }, 0);
  return answer;
}

absl::StatusOr<Answer> ParseOutputs(absl::string_view line, uint64_t id) {
  MACAW_ASSIGN_OR_RETURN(const Json json, ObjectIn(line, id));
  if (std::optional<Answer> failure = FailureIn(json)) return *std::move(failure);
  return Answer();
}

}  // namespace macaw::training::process
