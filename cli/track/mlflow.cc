#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/track/tracker.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

using Json = nlohmann::json;

constexpr int kConnectSeconds = 3, kAnswerSeconds = 10;
// What a server takes in one call (MLflow's documentation of its REST API, "Log Batch").
constexpr size_t kMostMetrics = 1000, kMostParameters = 100, kMostValueBytes = 6000;
constexpr char kApi[] = "/api/2.0/mlflow/";
constexpr char kRunTag[] = "macaw.run_id";
constexpr int kFirstError = 400;

std::string FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Server {
  std::string origin;  // "https://host:port"
  std::string path;    // before that of the API; ""
};

absl::StatusOr<Server> ServerOf(const TrackConfig& config) {
  std::string uri = config.mlflow_uri;
  if (uri.empty()) uri = FromEnvironment("MLFLOW_TRACKING_URI");
  if (uri.empty()) {
    return absl::InvalidArgumentError(
        "run.mlflow.uri: run.track names mlflow, so say where its server is (or set "
        "MLFLOW_TRACKING_URI)");
  }
  const size_t host = uri.find("://");
  if (!absl::StartsWith(uri, "http://") && !absl::StartsWith(uri, "https://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("run.mlflow.uri must be http://host:port or https://host:port, found \"", uri,
                     "\"; `mlflow server` serves a folder or a database"));
  }
  const size_t slash = std::min(uri.find('/', host + 3), uri.size());
  Server server{.origin = uri.substr(0, slash), .path = uri.substr(slash)};
  while (absl::EndsWith(server.path, "/")) server.path.pop_back();
  if (absl::StrContains(server.origin, '@')) {
    return absl::InvalidArgumentError(
        "run.mlflow.uri must not have a password in it: set MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN");
  }
  return server;
}

// A name that MLflow takes.
std::string NameFor(std::string name) {
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && !absl::StrContains("_-. /:", c))
      c = '_';
  }
  return name;
}

// Calls of the REST API. One thread, but for Interrupt.
class Api {
 public:
  explicit Api(Server server) : server_(std::move(server)), client_(server_.origin) {
    client_.set_connection_timeout(kConnectSeconds);
    client_.set_read_timeout(kAnswerSeconds);
    client_.set_write_timeout(kAnswerSeconds);
    client_.set_keep_alive(true);
    const std::string token = FromEnvironment("MLFLOW_TRACKING_TOKEN"),
                      user = FromEnvironment("MLFLOW_TRACKING_USERNAME"),
                      authority = FromEnvironment("MLFLOW_TRACKING_SERVER_CERT_PATH");
    if (!token.empty()) {
      client_.set_bearer_token_auth(token);
    } else if (!user.empty()) {
      client_.set_basic_auth(user, FromEnvironment("MLFLOW_TRACKING_PASSWORD"));
    }
    if (!authority.empty()) client_.set_ca_cert_path(authority);
  }

  std::string place() const { return server_.origin + server_.path; }

  // kNotFound for what the server does not have; the error names the call.
  absl::StatusOr<Json> Get(const std::string& call, const httplib::Params& parameters) {
    return Answer(call, [&] { return client_.Get(PathOf(call), parameters, httplib::Headers{}); });
  }
  absl::StatusOr<Json> Post(const std::string& call, const Json& body) {
    const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    return Answer(call, [&] { return client_.Post(PathOf(call), text, "application/json"); });
  }
  absl::Status Put(const std::string& path, const std::string& bytes) {
    return Answer(
               path,
               [&] { return client_.Put(server_.path + path, bytes, "application/octet-stream"); })
        .status();
  }

  void Interrupt() {
    interrupted_ = true;
    client_.stop();
  }

 private:
  std::string PathOf(const std::string& call) const {
    return absl::StrCat(server_.path, kApi, call);
  }

  template <typename Call>
  absl::StatusOr<Json> Answer(const std::string& call, const Call& make) {
    if (interrupted_) return absl::CancelledError("interrupted");
    const httplib::Result result = make();
    if (!result) {
      return absl::UnavailableError(
          absl::StrCat(place(), " does not answer (", httplib::to_string(result.error()), ")"));
    }
    Json answer = Json::parse(result->body, nullptr, /*allow_exceptions=*/false);
    if (result->status < kFirstError) {
      if (result->body.empty()) return Json::object();
      if (answer.is_object()) return answer;
      return absl::UnavailableError(absl::StrCat(place(), " answers ", call, " with no JSON"));
    }
    std::string code, message = result->body.substr(0, 200);
    if (answer.is_object()) {
      code = answer.value("error_code", "");
      message = answer.value("message", message);
    }
    const std::string text =
        absl::StrCat(place(), " answers ", call, " with ", result->status, ": ", message);
    return code == "RESOURCE_DOES_NOT_EXIST" ? absl::NotFoundError(text)
                                             : absl::UnavailableError(text);
  }

  const Server server_;
  httplib::Client client_;
  std::atomic<bool> interrupted_ = false;
};

// The text at a path of an answer ("run", "info", "run_id"); "" if there is none.
std::string TextAt(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* name : path) {
    if (!at->is_object() || !at->contains(name)) return "";
    at = &(*at)[name];
  }
  return at->is_string() ? at->get<std::string>() : "";
}

// A list at the end of a path; empty if there is none.
Json ListAt(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* name : path) {
    if (!at->is_object() || !at->contains(name)) return Json::array();
    at = &(*at)[name];
  }
  return at->is_array() ? *at : Json::array();
}

class MlflowTracker final : public Tracker {
 public:
  MlflowTracker(Server server, std::string experiment)
      : api_(std::move(server)), experiment_(std::move(experiment)) {}

  // What the server has counts, not what this side believes: a call that was given up may have had
  // its effect.
  absl::StatusOr<int64_t> Open(const RunFacts& facts) override {
    folder_ = facts.folder;
    MACAW_ASSIGN_OR_RETURN(const Json run, FindOrCreate(facts));
    id_ = TextAt(run, {"info", "run_id"});
    artifacts_ = TextAt(run, {"info", "artifact_uri"});
    MACAW_RETURN_IF_ERROR(Remember());
    MACAW_RETURN_IF_ERROR(SendParameters(facts, run));
    if (TextAt(run, {"info", "status"}) != "RUNNING") {
      MACAW_RETURN_IF_ERROR(
          api_.Post("runs/update", {{"run_id", id_}, {"status", "RUNNING"}}).status());
    }
    int64_t last = kNoRound;
    for (const Json& metric : ListAt(run, {"data", "metrics"})) {
      // Protobuf's JSON has 64-bit integers as texts.
      const Json step = metric.value("step", Json(0));
      int64_t round = kNoRound;
      if (step.is_number_integer()) round = step.get<int64_t>();
      if (step.is_string() && !absl::SimpleAtoi(step.get<std::string>(), &round)) round = kNoRound;
      last = std::max(last, round);
    }
    return last;
  }

  absl::Status Deliver(const std::vector<Row>& rows) override {
    Json metrics = Json::array();
    for (const Row& row : rows) {
      // A row is in one call, which the server accepts whole or not at all.
      if (metrics.size() + row.metrics.size() > kMostMetrics) {
        MACAW_RETURN_IF_ERROR(SendMetrics(metrics));
        metrics = Json::array();
      }
      for (const Metric& metric : row.metrics) {
        metrics.push_back(
            {{"key", NameFor(metric.name)},
             {"value", std::isfinite(metric.value) ? Json(metric.value) : Json("NaN")},
             {"timestamp", row.wall_ms},
             {"step", row.round}});
      }
    }
    return SendMetrics(metrics);
  }

  absl::Status Close(const RunEnd& end) override {
    for (const char* file : {"config.toml", "summary.json"})
      MACAW_RETURN_IF_ERROR(SendArtifact(file));
    if (end.end.empty()) return absl::OkStatus();
    const char* const status = end.end == "interrupted" ? "KILLED"
                               : end.end == "failed"    ? "FAILED"
                                                        : "FINISHED";
    return api_
        .Post("runs/update",
              {{"run_id", id_}, {"status", status}, {"end_time", absl::ToUnixMillis(absl::Now())}})
        .status();
  }

  void Interrupt() override { api_.Interrupt(); }

 private:
  std::string File() const { return folder_ + "/track/mlflow.json"; }

  absl::Status Remember() const {
    MACAW_RETURN_IF_ERROR(MakeDirectories(folder_ + "/track"));
    const Json known = {{"uri", api_.place()}, {"run_id", id_}};
    return AtomicWriteFile(File(), known.dump() + "\n");
  }

  // The run that the folder names, or one with this run's tag, or a new one.
  absl::StatusOr<Json> FindOrCreate(const RunFacts& facts) {
    if (FileExists(File())) {
      MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(File()));
      const Json known = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (TextAt(known, {"uri"}) == api_.place()) {
        absl::StatusOr<Json> run = Fetch(TextAt(known, {"run_id"}));
        if (!absl::IsNotFound(run.status())) return run;
      }
    }
    MACAW_ASSIGN_OR_RETURN(const std::string experiment, Experiment());
    MACAW_ASSIGN_OR_RETURN(
        const Json found,
        api_.Post("runs/search",
                  {{"experiment_ids", {experiment}},
                   {"filter", absl::StrCat("tags.\"", kRunTag, "\" = '", facts.id, "'")},
                   {"max_results", 1}}));
    const Json runs = ListAt(found, {"runs"});
    if (!runs.empty()) return Fetch(TextAt(runs[0], {"info", "run_id"}));
    MACAW_ASSIGN_OR_RETURN(
        const Json created,
        api_.Post("runs/create", {{"experiment_id", experiment},
                                  {"run_name", facts.name},
                                  {"start_time", facts.began_ms},
                                  {"tags",
                                   {{{"key", kRunTag}, {"value", facts.id}},
                                    {{"key", "mlflow.source.name"}, {"value", "macaw"}}}}}));
    return Fetch(TextAt(created, {"run", "info", "run_id"}));
  }

  absl::StatusOr<Json> Fetch(const std::string& id) {
    MACAW_ASSIGN_OR_RETURN(const Json answer, api_.Get("runs/get", {{"run_id", id}}));
    if (TextAt(answer, {"run", "info", "run_id"}).empty())
      return absl::UnavailableError(absl::StrCat(api_.place(), " answers runs/get without a run"));
    return answer["run"];
  }

  absl::StatusOr<std::string> Experiment() {
    absl::StatusOr<Json> found =
        api_.Get("experiments/get-by-name", {{"experiment_name", experiment_}});
    if (found.ok()) return TextAt(*found, {"experiment", "experiment_id"});
    if (!absl::IsNotFound(found.status())) return found.status();
    MACAW_ASSIGN_OR_RETURN(const Json made,
                           api_.Post("experiments/create", {{"name", experiment_}}));
    return TextAt(made, {"experiment_id"});
  }

  // A parameter never changes in MLflow: a run that goes on keeps its first ones.
  absl::Status SendParameters(const RunFacts& facts, const Json& run) {
    std::set<std::string> known;
    for (const Json& parameter : ListAt(run, {"data", "params"}))
      known.insert(TextAt(parameter, {"key"}));
    Json parameters = Json::array();
    const auto send = [&]() -> absl::Status {
      if (parameters.empty()) return absl::OkStatus();
      const Json body = {{"run_id", id_}, {"params", std::exchange(parameters, Json::array())}};
      return api_.Post("runs/log-batch", body).status();
    };
    for (const auto& [key, value] : facts.settings) {
      const std::string name = NameFor(key);
      if (value.empty() || known.contains(name)) continue;
      parameters.push_back({{"key", name}, {"value", value.substr(0, kMostValueBytes)}});
      if (parameters.size() == kMostParameters) MACAW_RETURN_IF_ERROR(send());
    }
    return send();
  }

  absl::Status SendMetrics(const Json& metrics) {
    if (metrics.empty()) return absl::OkStatus();
    return api_.Post("runs/log-batch", {{"run_id", id_}, {"metrics", metrics}}).status();
  }

  // Where the server keeps the artifacts itself. Other stores want their own clients and keys.
  absl::Status SendArtifact(const std::string& file) {
    absl::string_view path = artifacts_;
    if (!absl::ConsumePrefix(&path, "mlflow-artifacts:") || !FileExists(folder_ + "/" + file))
      return absl::OkStatus();
    if (absl::ConsumePrefix(&path, "//")) path.remove_prefix(std::min(path.find('/'), path.size()));
    MACAW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(folder_ + "/" + file));
    return api_.Put(absl::StrCat("/api/2.0/mlflow-artifacts/artifacts", path, "/", file), bytes);
  }

  Api api_;
  const std::string experiment_;
  std::string folder_, id_, artifacts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tracker>> MakeMlflowTracker(const TrackConfig& config) {
  MACAW_ASSIGN_OR_RETURN(Server server, ServerOf(config));
  return std::make_unique<MlflowTracker>(std::move(server), config.mlflow_experiment);
}

}  // namespace macaw::cli
