#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "core/safetensors.h"
#include "server/log/reader.h"
#include "testing/temporary_folder.h"

// The folder of a run, written by hand.
namespace macaw::cli {

struct HandRun {
  std::string config =
      "[run]\nname = \"by hand\"\nrounds = 2\nseed = 7\nout = \"/home/somebody/runs/x\"\n"
      "[data]\nsource = \"csv\"\npath = \"/data/rows.csv\"\n[local]\nlr = 0.1\n"
      "[server]\nlisten = \"127.0.0.1:0\"\n";
  std::vector<std::string> rows = {R"({"round":1,"clients":2,"train_loss":0.5})",
                                   R"({"round":2,"clients":2,"train_loss":0.25})"};
  std::vector<std::string> clients = {};  // of clients.jsonl; none: no file
  std::vector<float> model = {1, 2, 3};
  std::string end = "finished";
  std::string joined = {};  // the profile of a node in rounds.log; "": it names none
  // What each round sends, and the sums of clients {0, 1} and of client 2 alone.
  std::vector<std::string> broadcasts = {"first", "second"};
  std::vector<std::vector<std::string>> sums = {{"s1", "t1"}, {"s2", "t2"}};
  std::vector<std::vector<uint64_t>> cohorts = {{0, 1, 2}, {0, 1, 2}};
};

inline std::string WriteHandRun(const testing_support::TemporaryFolder& folder,
                                const std::string& name, const HandRun& run = {}) {
  namespace log = server::log;
  const std::string path = folder / name;
  folder.Write(name + "/config.toml", run.config);
  const auto lines = [&](const std::string& file, const std::vector<std::string>& rows) {
    std::string text;
    for (const std::string& row : rows) absl::StrAppend(&text, row, "\n");
    folder.Write(absl::StrCat(name, "/", file), text);
  };
  lines("metrics.jsonl", run.rows);
  if (!run.clients.empty()) lines("clients.jsonl", run.clients);
  const auto digest = [](const std::string& text) { return DigestOf(absl::string_view(text)); };
  const Digest model = DigestOf(BytesOf(std::span(run.model)));
  if (!run.end.empty()) {
    const nlohmann::json summary = {
        {"name", "by hand"},
        {"program", "macaw-server 9.9.9"},
        {"algorithm", "fedavg"},
        {"seed", 7},
        {"end", run.end},
        {"rounds", run.rows.size()},
        {"model_digest", model.Hex()},
        {"data_digest", digest("rows").Hex()},
        {"final", {{"train_loss", 0.25}}},
        {"profile",
         {{"trainer", "fused"}, {"instruction_set", "avx2"}, {"libraries", "glibc 2.36"}}}};
    folder.Write(name + "/summary.json", summary.dump());
    EXPECT_TRUE(WriteSafetensors(path + "/model.safetensors",
                                 {{.name = "0.weight",
                                   .dtype = "F32",
                                   .shape = {run.model.size()},
                                   .bytes = BytesOf(std::span(run.model))}},
                                 {})
                    .ok());
  }
  std::string text = log::FileHead();
  uint64_t sequence = 0;
  const auto add = [&](log::Record record) {
    ++sequence;
    log::AppendFramed({.sequence = sequence,
                       .ns = static_cast<int64_t>(sequence) * 1'000'000'000,
                       .record = std::move(record)},
                      text);
  };
  add(log::RunOpened{.epoch = 1, .wall_ns = 1'795'000'000'000'000'000});
  if (!run.joined.empty()) add(log::NodeJoined{.name = "worker-0", .profile = run.joined});
  for (uint32_t i = 0; i < run.broadcasts.size(); ++i) {
    const Round round(i + 1);
    log::RoundOpened opened{.round = round, .broadcast = digest(run.broadcasts[i])};
    for (const uint64_t client : run.cohorts[i]) opened.cohort.push_back({ClientId(client)});
    add(std::move(opened));
    add(log::Accepted{.round = round,
                      .commit = 1,
                      .included = {{ClientId(1)}, {ClientId(0)}},
                      .sums = digest(run.sums[i][0])});
    add(log::Accepted{
        .round = round, .commit = 2, .included = {{ClientId(2)}}, .sums = digest(run.sums[i][1])});
    add(log::Closed{.round = round, .last = true, .counted = run.cohorts[i].size()});
  }
  add(log::RunEnded{.rounds = static_cast<uint32_t>(run.broadcasts.size()), .model = model});
  folder.Write(name + "/rounds.log", text);
  return path;
}

}  // namespace macaw::cli
