#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/system/table_rules.h"

namespace macaw::testing_support {

using Settings = std::vector<std::string>;

// Of which rules the pair is refused or ended, and by which words of the sentence.
struct Refusal {
  Names rules;
  std::string words;
};

// What can stand around a rule. A cell of the table, a rule in a surrounding, is one of four:
//   refused   before the run has a folder, by a sentence with the words that stand here
//   equal     with `like`: the model and the clients' states are those of the run with these
//             settings instead
//   lawful    without: the same bytes for any workers and owners, for a run that is interrupted and
//             goes on, and for one that is repeated from its log
//   ended     before its last round, by a sentence, whether it was interrupted or not
struct Surrounding {
  std::string name;
  Settings settings;                  // over the rule's own
  std::vector<Refusal> refused = {};  // the first one that names the rule counts
  std::optional<Settings> like = {};  // over the rule's own
  Names unlike = {};                  // rules for which `like` does not hold: lawful
  std::vector<Refusal> ends = {};     // which rules' runs end before their last round, and why
  // What a row of metrics.jsonl shows if the surrounding has had an effect; null: not asked.
  // `unseen`: rules of which no row does.
  std::function<bool(const nlohmann::json& row)> shows = {};
  Names unseen = {};
  // The two runs are alike in their models alone: one of them keeps more of the clients.
  bool states_differ = false;
  // It needs programs of an owner's: a pair that is not refused is not run.
  bool only_checked = false;
  bool needs_libtorch = false;

  // "": the pair is not refused, the run does not end early.
  std::string RefusalOf(const std::string& rule) const { return WordsOf(refused, rule); }
  std::string EndOf(const std::string& rule) const { return WordsOf(ends, rule); }
  bool IsLike(const std::string& rule) const { return like.has_value() && !unlike.contains(rule); }

 private:
  static std::string WordsOf(const std::vector<Refusal>& reasons, const std::string& rule) {
    for (const Refusal& reason : reasons) {
      if (reason.rules.contains(rule)) return reason.words;
    }
    return "";
  }
};

const std::vector<Surrounding>& Surroundings();

}  // namespace macaw::testing_support
