// What the system costs: steps per second of a bare LibTorch loop and of `macaw simulate` doing the
// same work (one configuration file, the same clients, rows and batches), turn by turn in child
// processes, and what a round costs besides its steps. `bench_cost --help` lists the options.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/bare_loop.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "core/child.h"
#include "core/files.h"
#include "core/memory.h"
#include "core/status.h"
#include "data/options.h"

namespace macaw::bench {
namespace {

namespace fs = std::filesystem;
using Times = std::vector<RoundTime>;

// The first rounds pay for first uses of everything.
constexpr size_t kWarmRounds = 2;
// One client and one step a slot: what is left is the round itself.
constexpr uint32_t kEmptyRounds = 60;

struct Job {
  std::string name;
  uint32_t rounds = 0;  // timed in one turn: a few seconds
  std::string config;
};

std::vector<Job> Jobs(const std::string& images, const std::string& backend) {
  const std::string common =
      absl::StrCat("[evaluation]\nevery = 0\n[workers]\nprocesses = 1\nbackend = \"", backend,
                   "\"\n[run]\nseed = 1\ncheckpoint_every = 100000\n");
  return {
      {"logistic", 20,
       absl::StrCat(common, R"(
[data]
source = "synthetic"
resident = true
[data.synthetic]
clients = 1000
alpha = 1.0
beta = 1.0
max_size = 2000
[model]
name = "logistic"
[cohort]
size = 100
)",
                    "[local]\nbatch_size = 10\nlr = 0.01\n")},
      {"simple_cnn", 6,
       absl::StrCat(common, "[data]\nsource = \"idx\"\npath = \"", images, R"("
[partition]
scheme = "iid"
clients = 150
[model]
name = "simple_cnn"
[cohort]
size = 20
)",
                    "[local]\nbatch_size = 20\nlr = 0.05\n")},
      {"resnet18_gn", 2,
       absl::StrCat(common, "[data]\nsource = \"idx\"\npath = \"", images, R"("
[partition]
scheme = "iid"
clients = 150
[model]
name = "resnet18_gn"
[cohort]
size = 20
)",
                    "[local]\nbatch_size = 20\nlr = 0.05\n")},
  };
}

struct Options {
  std::string images = MACAW_SOURCE_DIR "/examples/data/mnist/t10k-images-idx3-ubyte.gz";
  std::vector<std::string> jobs = {"logistic", "simple_cnn"};
  std::string backend = "torch";
  std::vector<uint32_t> slots = {1, 2};
  uint32_t repetitions = 5;
  bool plain_malloc = false;
  std::string bare;  // set in a child: the configuration to run the bare loop on
  std::vector<std::string> set;
};

absl::StatusOr<Times> RunBare(const Options& options) {
  const sdk::Catalogue catalogue = sdk::Catalogue::Builtins();
  std::vector<cli::Override> overrides;
  for (const std::string& text : options.set) {
    MACAW_ASSIGN_OR_RETURN(overrides.emplace_back(), cli::ParseOverride(text));
  }
  MACAW_ASSIGN_OR_RETURN(const cli::Document document, cli::OpenDocument(options.bare));
  MACAW_ASSIGN_OR_RETURN(cli::Config config, cli::ReadConfig(document, overrides, catalogue));
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         data::OpenDataset(config.node.data, config.node.partition));
  MACAW_RETURN_IF_ERROR(cli::Resolve(config, *dataset, catalogue));
  return RunBareLoop(config, *dataset, cli::SlotsPerProcess(config.node.workers));
}

absl::Status RunChild(const std::vector<std::string>& argv, const std::string& log) {
  fs::remove(log);
  MACAW_ASSIGN_OR_RETURN(Child child, Child::Spawn({.name = argv[0], .argv = argv, .log = log}));
  const Exit exit = child.Reap();
  if (exit.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(argv[0], " ended with ", exit.Text()));
}

// The two systems, each run in processes of its own on one configuration file.
class Contest {
 public:
  Contest(const Options& options, std::string folder)
      : options_(options),
        folder_(std::move(folder)),
        programs_(fs::read_symlink("/proc/self/exe").parent_path()) {}

  absl::StatusOr<Times> Bare(const std::string& config, const std::vector<std::string>& set) const {
    std::vector<std::string> argv = {programs_ / "bench_cost", "--bare", config};
    if (options_.plain_malloc) argv.push_back("--plain-malloc");
    for (const std::string& text : set) argv.insert(argv.end(), {"--set", text});
    const std::string log = folder_ + "/bare.log";
    MACAW_RETURN_IF_ERROR(RunChild(argv, log));
    MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(log));
    Times times;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
      RoundTime time;
      if (words.size() == 2 && absl::SimpleAtoi(words[0], &time.steps) &&
          absl::SimpleAtod(words[1], &time.seconds)) {
        times.push_back(time);
      }
    }
    return times;
  }

  // From the close of one round to the close of the next, so nothing between rounds is left out.
  absl::StatusOr<Times> Macaw(const std::string& config,
                              const std::vector<std::string>& set) const {
    const std::string run = folder_ + "/run";
    std::vector<std::string> argv = {programs_ / "macaw", "simulate", config, "--out", run,
                                     "--force",           "--quiet"};
    for (const std::string& text : set) argv.insert(argv.end(), {"--set", text});
    MACAW_RETURN_IF_ERROR(RunChild(argv, folder_ + "/macaw.log"));
    Times times;
    std::ifstream rows(run + "/metrics.jsonl"), events(run + "/events.jsonl");
    double last = 0;
    for (std::string line; std::getline(events, line);) {
      const auto event = nlohmann::json::parse(line);
      if (event["event"] == "worker_joined") last = event["t"];
      if (event["event"] != "round") continue;
      const double now = event["t"];
      std::string row;
      std::getline(rows, row);
      times.push_back({nlohmann::json::parse(row)["steps"], now - last});
      last = now;
    }
    return times;
  }

 private:
  const Options& options_;
  const std::string folder_;
  const fs::path programs_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double StepsPerSecond(const Times& times) {
  RoundTime sum;
  for (size_t i = kWarmRounds; i < times.size(); ++i) {
    sum.steps += times[i].steps;
    sum.seconds += times[i].seconds;
  }
  return sum.steps / sum.seconds;
}

double MedianMilliseconds(const Times& times) {
  std::vector<double> all;
  for (size_t i = kWarmRounds; i < times.size(); ++i) all.push_back(times[i].seconds * 1e3);
  return Median(all);
}

absl::Status Measure(const Options& options, const Job& job, uint32_t slots,
                     const std::string& folder) {
  const std::string config = absl::StrCat(folder, "/", job.name, ".toml");
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(config, job.config));
  const Contest contest(options, folder);
  const std::string with_slots = absl::StrCat("workers.slots=", slots);
  const std::vector<std::string> full = {with_slots,
                                         absl::StrCat("run.rounds=", job.rounds + kWarmRounds)};
  const std::vector<std::string> empty = {with_slots,
                                          absl::StrCat("run.rounds=", kEmptyRounds + kWarmRounds),
                                          absl::StrCat("cohort.size=", slots), "local.steps=1"};

  std::vector<double> bare, macaw, ratio, overhead;
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    MACAW_ASSIGN_OR_RETURN(const Times a, contest.Bare(config, full));
    MACAW_ASSIGN_OR_RETURN(const Times b, contest.Macaw(config, full));
    if (a.size() != job.rounds + kWarmRounds || b.size() != a.size() ||
        a.back().steps != b.back().steps) {
      return absl::InternalError("the two did not do the same work");
    }
    bare.push_back(StepsPerSecond(a));
    macaw.push_back(StepsPerSecond(b));
    ratio.push_back(macaw.back() / bare.back());
    if (i % 2 == 1) continue;
    MACAW_ASSIGN_OR_RETURN(const Times c, contest.Bare(config, empty));
    MACAW_ASSIGN_OR_RETURN(const Times d, contest.Macaw(config, empty));
    overhead.push_back(MedianMilliseconds(d) - MedianMilliseconds(c));
  }
  const auto best = [](const std::vector<double>& v) {
    return *std::max_element(v.begin(), v.end());
  };
  const auto least = [](const std::vector<double>& v) {
    return *std::min_element(v.begin(), v.end());
  };
  std::printf("%-11s %5u | %8.1f %8.1f | %8.1f %8.1f | %6.3f (%.3f-%.3f) %6.3f | %9.3f\n",
              job.name.c_str(), slots, Median(bare), best(bare), Median(macaw), best(macaw),
              Median(ratio), least(ratio), best(ratio), best(macaw) / best(bare), Median(overhead));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status MeasureAll(const Options& options) {
  const std::string folder = fs::temp_directory_path() / absl::StrCat("bench_cost-", ::getpid());
  fs::create_directories(folder);
  std::printf("%-11s %5s | %17s | %17s | %29s | %s\n", "", "", "bare, steps/s", "macaw, steps/s",
              "macaw : bare", "overhead");
  std::printf("%-11s %5s | %8s %8s | %8s %8s | %6s %13s %8s | %s\n", "job", "slots", "median",
              "best", "median", "best", "median", "(min-max)", "best", "ms/round");
  absl::Status status;
  for (const Job& job : Jobs(options.images, options.backend)) {
    if (std::find(options.jobs.begin(), options.jobs.end(), job.name) == options.jobs.end())
      continue;
    for (const uint32_t slots : options.slots) {
      if (status.ok()) status = Measure(options, job, slots, folder);
    }
  }
  fs::remove_all(folder);
  return status;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Steps per second of Macaw and of a bare LibTorch loop on the same work",
               "bench_cost");
  app.add_option("--jobs", options.jobs,
                 "logistic, simple_cnn, resnet18_gn (default: the first two)")
      ->delimiter(',');
  app.add_option("--slots", options.slots, "Default: 1,2")->delimiter(',');
  app.add_option("--repetitions", options.repetitions, "Turns of each (default: 5)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--images", options.images, "Folder of the MNIST files");
  app.add_option("--backend", options.backend, "Macaw's workers.backend (default: torch)");
  app.add_flag("--plain-malloc", options.plain_malloc,
               "The bare loop leaves malloc as it comes (Macaw tells it to keep freed memory)");
  app.add_option("--bare", options.bare,
                 "Run only the bare loop on this configuration and print "
                 "steps and seconds of each round");
  app.add_option("--set", options.set, "With --bare: change a key of the configuration");
  CLI11_PARSE(app, argc, argv);
  absl::Status status;
  if (options.bare.empty()) {
    status = MeasureAll(options);
  } else {
    if (!options.plain_malloc) KeepFreedMemory();
    const absl::StatusOr<Times> times = RunBare(options);
    status = times.status();
    for (const RoundTime& time : times.value_or(Times())) {
      std::printf("%llu %.9f\n", static_cast<unsigned long long>(time.steps), time.seconds);
    }
  }
  if (status.ok()) return 0;
  std::cerr << "bench_cost: error: " << status.message() << std::endl;
  return 1;
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) { return macaw::bench::Main(argc, argv); }
