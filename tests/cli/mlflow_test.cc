// The tracker of an MLflow server, against a small one in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cli/track/delivery.h"
#include "cli/track/tracking.h"
#include "tests/cli/track_run.h"

namespace macaw::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr auto kEver = std::chrono::hours(1);
constexpr auto kAtOnce = std::chrono::milliseconds(1);
constexpr char kApi[] = "/api/2.0/mlflow/";

// What a server of MLflow keeps, and what goes wrong at it.
class FakeMlflow {
 public:
  struct Point {
    std::string key;
    int64_t step, timestamp;
    Json value;
  };
  struct Run {
    std::string name, status, experiment;
    std::map<std::string, std::string> params, tags;
    std::vector<Point> metrics;
  };
  struct State {
    std::map<std::string, std::string> experiments;  // name → id
    std::vector<Run> runs;                           // run "run-0" is the first
    std::map<std::string, std::string> artifacts;    // path → bytes
    std::vector<std::string> calls, authorizations;
    int fail = 0;       // so many further calls of log-batch are answered with 503 …
    bool late = false;  // … after they had their effect
    bool hang = false;  // log-batch waits until the server is stopped
    bool stopped = false;
  };

  explicit FakeMlflow(std::string prefix = "") : prefix_(std::move(prefix)) {
    server_.set_keep_alive_timeout(1);
    Serve(
        "experiments/get-by-name",
        [this](const Json&, const httplib::Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          const auto found = state_.experiments.find(request.get_param_value("experiment_name"));
          if (found == state_.experiments.end()) return Missing("no such experiment");
          return Json{{"experiment", {{"experiment_id", found->second}}}};
        });
    Serve("experiments/create",
          [this](const Json& body, const httplib::Request&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            const std::string id = absl::StrCat(state_.experiments.size() + 1);
            state_.experiments[body["name"]] = id;
            return Json{{"experiment_id", id}};
          });
    Serve("runs/search",
          [this](const Json& body, const httplib::Request&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            Json found = Json::array();
            for (size_t i = 0; i < state_.runs.size(); ++i) {
              const std::string tag = state_.runs[i].tags["macaw.run_id"];
              if (absl::StrContains(body["filter"].get<std::string>(), tag))
                found.push_back(Shown(i));
            }
            return Json{{"runs", found}};
          });
    Serve("runs/create",
          [this](const Json& body, const httplib::Request&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            Run run;
            run.name = body["run_name"];
            run.experiment = body["experiment_id"];
            run.status = "RUNNING";
            for (const Json& tag : body["tags"]) run.tags[tag["key"]] = tag["value"];
            state_.runs.push_back(run);
            return Json{{"run", Shown(state_.runs.size() - 1)}};
          });
    Serve("runs/get", [this](const Json&, const httplib::Request& request)
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                            const std::string id = request.get_param_value("run_id");
                            for (size_t i = 0; i < state_.runs.size(); ++i) {
                              if (id == absl::StrCat("run-", i)) return Json{{"run", Shown(i)}};
                            }
                            return Missing("no such run");
                          });
    Serve("runs/update",
          [this](const Json& body, const httplib::Request&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            RunOf(body).status = body["status"];
            return Json::object();
          });
    Serve("runs/log-batch", [this](const Json& body,
                                   const httplib::Request&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (state_.hang) mutex_.Await(absl::Condition(&state_.stopped));
      const bool fails = body.contains("metrics") && state_.fail > 0;
      if (fails) --state_.fail;
      if (!fails || state_.late) Log(body);
      if (!fails) return Json::object();
      return Json{{"error_code", "TEMPORARILY_UNAVAILABLE"}, {"message", "the database is locked"}};
    });
    server_.Put(prefix_ + R"(/api/2\.0/mlflow-artifacts/artifacts/(.*))",
                [this](const httplib::Request& request, httplib::Response& response) {
                  const absl::MutexLock lock(&mutex_);
                  state_.artifacts[request.matches[1]] = request.body;
                  response.set_content("{}", "application/json");
                });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~FakeMlflow() {
    Change([](State& state) { state.stopped = true; });
    server_.stop();
    thread_.join();
  }

  std::string uri() const { return absl::StrCat("http://127.0.0.1:", port_, prefix_); }
  void Change(const std::function<void(State&)>& change) ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    change(state_);
  }
  State Now() ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    return state_;
  }

 private:
  using Handler = std::function<Json(const Json& body, const httplib::Request& request)>;

  void Serve(const std::string& call, const Handler& handler) {
    const auto answer = [this, call, handler](const httplib::Request& request,
                                              httplib::Response& response) {
      const absl::MutexLock lock(&mutex_);
      state_.calls.push_back(call);
      state_.authorizations.push_back(request.get_header_value("Authorization"));
      const Json answer =
          handler(Json::parse(request.body, nullptr, /*allow_exceptions=*/false), request);
      const std::string code = answer.value("error_code", "");
      if (!code.empty()) response.status = code == "RESOURCE_DOES_NOT_EXIST" ? 404 : 503;
      response.set_content(answer.dump(), "application/json");
    };
    server_.Get(absl::StrCat(prefix_, kApi, call), answer);
    server_.Post(absl::StrCat(prefix_, kApi, call), answer);
  }

  static Json Missing(const char* what) {
    return {{"error_code", "RESOURCE_DOES_NOT_EXIST"}, {"message", what}};
  }

  // As MLflow answers: the newest value of each metric, 64-bit integers as numbers or as texts.
  Json Shown(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Run& run = state_.runs[index];
    std::map<std::string, int64_t> newest;
    for (const Point& point : run.metrics)
      newest[point.key] = std::max(newest[point.key], point.step);
    Json metrics = Json::array(), params = Json::array();
    for (const auto& [key, step] : newest) {
      metrics.push_back(
          {{"key", key}, {"step", step % 2 == 0 ? Json(step) : Json(absl::StrCat(step))}});
    }
    for (const auto& [key, value] : run.params) params.push_back({{"key", key}, {"value", value}});
    const std::string id = absl::StrCat("run-", index);
    return {{"info",
             {{"run_id", id},
              {"status", run.status},
              {"artifact_uri", absl::StrCat("mlflow-artifacts:/1/", id, "/artifacts")}}},
            {"data", {{"metrics", metrics}, {"params", params}}}};
  }

  Run& RunOf(const Json& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return state_.runs.at(std::stoul(body["run_id"].get<std::string>().substr(4)));
  }

  void Log(const Json& body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Run& run = RunOf(body);
    EXPECT_LE(body.value("metrics", Json::array()).size(), 1000u);
    EXPECT_LE(body.value("params", Json::array()).size(), 100u);
    for (const Json& metric : body.value("metrics", Json::array()))
      run.metrics.push_back({metric["key"], metric["step"], metric["timestamp"], metric["value"]});
    for (const Json& param : body.value("params", Json::array())) {
      EXPECT_TRUE(run.params.emplace(param["key"], param["value"]).second) << "a second " << param;
    }
  }

  const std::string prefix_;
  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

TrackConfig ConfigFor(const FakeMlflow& server) {
  TrackConfig config;
  config.to = {"mlflow"};
  config.mlflow_uri = server.uri();
  return config;
}

std::unique_ptr<Tracker> TrackerFor(const FakeMlflow& server) {
  auto tracker = MakeMlflowTracker(ConfigFor(server));
  EXPECT_TRUE(tracker.ok()) << tracker.status();
  return *std::move(tracker);
}

std::vector<int64_t> StepsOf(const FakeMlflow::Run& run, const std::string& key) {
  std::vector<int64_t> steps;
  for (const FakeMlflow::Point& point : run.metrics) {
    if (point.key == key) steps.push_back(point.step);
  }
  return steps;
}

std::vector<int64_t> Count(int64_t to) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= to; ++step) steps.push_back(step);
  return steps;
}

TEST(MlflowTracker, SendsEveryValueParametersAndArtifacts) {
  const TrackedRun run;
  run.AddRows(1, 600);  // more than the metrics of one call
  run.End(server::log::End::kFinished);
  run.Write("summary.json", "{\"rounds\": 600}");
  FakeMlflow server("/below/a/path");
  EXPECT_EQ(run.HandOver(*TrackerFor(server)), 600u);
  const FakeMlflow::State state = server.Now();
  EXPECT_TRUE(state.experiments.contains("macaw"));
  ASSERT_EQ(state.runs.size(), 1u);
  const FakeMlflow::Run& tracked = state.runs[0];
  EXPECT_EQ(tracked.name, "a run");
  EXPECT_EQ(tracked.status, "FINISHED");
  EXPECT_EQ(tracked.params.at("local.lr"), "0.1");
  EXPECT_EQ(StepsOf(tracked, "train_loss"), Count(600));
  size_t evaluated = 0;
  for (const FakeMlflow::Point& point : tracked.metrics) {
    if (point.key == "train_loss") {
      EXPECT_EQ(point.value.get<double>(), TrackedRun::LossOf(point.step));
    }
    if (point.key == "test_loss") {
      EXPECT_EQ(point.value, "NaN");  // Protobuf's JSON
      ++evaluated;
    }
  }
  EXPECT_EQ(evaluated, 200u);
  EXPECT_EQ(state.artifacts.at("1/run-0/artifacts/summary.json"), "{\"rounds\": 600}");
  EXPECT_TRUE(state.artifacts.contains("1/run-0/artifacts/config.toml"));
}

TEST(MlflowTracker, GoesOnInTheSameRun) {
  const TrackedRun run;
  FakeMlflow server;
  run.AddRows(1, 9);
  run.End(server::log::End::kInterrupted);
  run.HandOver(*TrackerFor(server));
  EXPECT_EQ(server.Now().runs.at(0).status, "KILLED");
  run.CutRowsAfter(5);
  run.AddRows(6, 12);
  run.End(server::log::End::kStopped);
  EXPECT_EQ(run.HandOver(*TrackerFor(server)), 3u);
  // The folder has lost its note, or the answer to runs/create never came: the run's tag finds it.
  std::filesystem::remove(run.Path("track/mlflow.json"));
  EXPECT_EQ(run.HandOver(*TrackerFor(server)), 0u);
  const FakeMlflow::State state = server.Now();
  ASSERT_EQ(state.runs.size(), 1u);
  EXPECT_EQ(StepsOf(state.runs[0], "clients"), Count(12));
  EXPECT_EQ(state.runs[0].status, "FINISHED");
}

TEST(MlflowTracker, BeginsARunAnewThatWasDeletedThere) {
  const TrackedRun run;
  FakeMlflow server;
  run.AddRows(1, 4);
  run.HandOver(*TrackerFor(server));
  server.Change([](FakeMlflow::State& state) { state.runs.clear(); });
  EXPECT_EQ(run.HandOver(*TrackerFor(server)), 4u);
  EXPECT_EQ(StepsOf(server.Now().runs.at(0), "clients"), Count(4));
}

TEST(MlflowTracker, BringsItsTokenFromTheEnvironment) {
  const TrackedRun run;
  FakeMlflow server;
  run.AddRows(1, 1);
  ::setenv("MLFLOW_TRACKING_TOKEN", "a secret", 1);
  run.HandOver(*TrackerFor(server));
  ::unsetenv("MLFLOW_TRACKING_TOKEN");
  EXPECT_EQ(server.Now().authorizations.at(0), "Bearer a secret");
  EXPECT_THAT(run.Read("track/mlflow.json"), ::testing::Not(HasSubstr("secret")));
}

TEST(MlflowTracker, NamesTheKeyOfABadAddress) {
  ::unsetenv("MLFLOW_TRACKING_URI");
  TrackConfig config;
  for (const char* uri : {"", "/tmp/mlruns", "databricks", "http://me:secret@host:1"}) {
    config.mlflow_uri = uri;
    const absl::Status status = MakeMlflowTracker(config).status();
    EXPECT_THAT(status.message(), HasSubstr("run.mlflow.uri")) << uri;
    EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("secret")));
  }
  ::setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000/", 1);
  config.mlflow_uri = "";
  EXPECT_TRUE(MakeMlflowTracker(config).ok());
  ::unsetenv("MLFLOW_TRACKING_URI");
}

struct Said {
  absl::Mutex mutex;
  std::vector<std::string> lines ABSL_GUARDED_BY(mutex);
  std::vector<std::string> Lines() {
    const absl::MutexLock lock(&mutex);
    return lines;
  }
};

std::unique_ptr<Delivery> Deliver(const TrackedRun& run, const FakeMlflow& server, Said& said) {
  DeliveryOptions options;
  options.folder = run.folder();
  options.name = "mlflow";
  options.say = [&said](const std::string& line) {
    const absl::MutexLock lock(&said.mutex);
    said.lines.push_back(line);
  };
  options.look_every = kAtOnce;
  options.retry_after = kAtOnce;
  return std::make_unique<Delivery>(std::move(options), TrackerFor(server));
}

TEST(MlflowDelivery, HasNothingTwiceAfterErrorsAndLateAnswers) {
  for (const bool late : {false, true}) {
    const TrackedRun run;
    run.AddRows(1, 500);
    FakeMlflow server;
    server.Change([late](FakeMlflow::State& state) {
      state.fail = 3;
      state.late = late;
    });
    Said said;
    const auto delivery = Deliver(run, server, said);
    delivery->NoMoreRows();
    EXPECT_TRUE(delivery->Finish(kEver));
    EXPECT_EQ(StepsOf(server.Now().runs.at(0), "train_loss"), Count(500));
    EXPECT_EQ(server.Now().runs.size(), 1u);
    const std::vector<std::string> lines = said.Lines();
    ASSERT_FALSE(lines.empty());
    EXPECT_THAT(lines[0], HasSubstr("the database is locked"));
  }
}

TEST(MlflowDelivery, SaysWhatIsLeftOfAServerThatHangsAndDeliversItLater) {
  const TrackedRun run;
  run.AddRows(1, 20);
  FakeMlflow server;
  server.Change([](FakeMlflow::State& state) { state.hang = true; });
  Said said;
  {
    const auto delivery = Deliver(run, server, said);
    delivery->NoMoreRows();
    EXPECT_FALSE(delivery->Finish(kAtOnce));
  }
  EXPECT_THAT(said.Lines(), ElementsAre(HasSubstr("20 rows are not delivered")));
  server.Change([](FakeMlflow::State& state) {
    state.hang = false;
    state.stopped = true;
  });
  const auto delivery = Deliver(run, server, said);
  delivery->NoMoreRows();
  EXPECT_TRUE(delivery->Finish(kEver));
  EXPECT_EQ(StepsOf(server.Now().runs.at(0), "clients"), Count(20));
}

TEST(MlflowDelivery, SaysThatNobodyAnswers) {
  const TrackedRun run;
  run.AddRows(1, 2);
  TrackConfig config;
  {
    const FakeMlflow gone;
    config = ConfigFor(gone);
  }
  const auto tracking = Tracking::Start(run.folder(), config);
  ASSERT_TRUE(tracking.ok()) << tracking.status();
  EXPECT_FALSE((*tracking)->Finish(std::chrono::milliseconds(200)));
  const std::vector<std::string> lines = (*tracking)->TakeLines();
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.back(), HasSubstr("2 rows are not delivered"));
}

}  // namespace
}  // namespace macaw::cli
