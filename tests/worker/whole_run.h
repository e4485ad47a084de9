#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "core/files.h"
#include "testing/local_link.h"
#include "tests/worker/synthetic_run.h"
#include "worker/worker.h"

// A real worker and a real server, with nothing but a function call between them, and what their
// run leaves behind.
namespace macaw::worker::fixtures {

inline absl::Status Work(server::Coordinator& server, const data::Dataset& dataset, Options options,
                         std::stop_token stop = {}) {
  const auto link = fleet::MakeLocalLink(server);
  return worker::Run(options, dataset, *link, Registry(), OnlyFused(), stop);
}

struct Result {
  std::string digest, metrics;
  double test_loss = 0, first_loss = 0;
  explicit Result(const std::string& run_dir) : metrics(*ReadFile(run_dir + "/metrics.jsonl")) {
    const nlohmann::json summary = nlohmann::json::parse(*ReadFile(run_dir + "/summary.json"));
    digest = summary["model_digest"];
    test_loss = summary["final"]["test_loss"];
    for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
      const nlohmann::json row = nlohmann::json::parse(line);
      if (row.contains("test_loss") && first_loss == 0) first_loss = row["test_loss"];
    }
  }
};

inline Result RunWith(const data::Dataset& dataset, Options options, uint32_t rounds = 4) {
  const TemporaryFolder folder;
  const auto server = StartServer(OptionsOf(SyntheticRun(dataset, rounds), folder.path()));
  const absl::Status status = Work(*server, dataset, std::move(options));
  EXPECT_TRUE(status.ok()) << status;
  const auto outcome = server->Wait();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return Result(folder.path());
}

}  // namespace macaw::worker::fixtures
