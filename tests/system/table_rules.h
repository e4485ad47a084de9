#pragma once

#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "testing/temporary_folder.h"

// The rules of the table of rules and surroundings, and their smallest runs.
namespace macaw::testing_support {

using Names = std::set<std::string>;

inline Names operator+(Names left, const Names& right) {
  left.insert(right.begin(), right.end());
  return left;
}
inline Names operator-(Names left, const Names& right) {
  for (const std::string& name : right) left.erase(name);
  return left;
}

// A rule with the keys that it needs in the runs below; a row of the table.
struct TableRule {
  std::string name;
  std::string algorithm;
  std::vector<std::string> settings;
};
void PrintTo(const TableRule& rule, std::ostream* out);

// Every built-in rule, and some of them once more with other parameters.
const std::vector<TableRule>& TableRules();

// What rules are, by the names of their rows. The table says it once more, beside what their
// descriptions say to the rooms.
extern const Names kEveryRule;
extern const Names kSums;           // clients send sums over rows, and train nothing
extern const Names kHooks;          // LibTorch alone trains them
extern const Names kKeepsState;     // clients keep something from turn to turn
extern const Names kFollowsSent;    // and it mirrors what was counted of an update
extern const Names kSeveralPhases;  // a round has several
extern const Names kCollects;       // the server looks at each client's own update
extern const Names kMeanOfThoseWhoCame;
extern const Names kArrivals;  // updates of older models move the model, too
extern const Names kByNumber;  // clients that train are numbered from 0
extern const Names
    kNoOptions;  // local.epochs, steps, batch_size, shuffle and drop_last are not read

// Twelve clients of a table of six features and three classes, of 1 (client 7) to a dozen rows;
// most have test rows, too. Five of them train in a round.
inline constexpr uint32_t kTableClients = 12;

// Writes a run's files. Returns the path of its configuration. Beside it are, for data.path and
// partition.path:
//   huge.csv             the rows of client 5 are so large that its update is no update
//   empty-last.json      a thirteenth client, with test rows alone
//   empty-within.json    client 4 has no training rows
std::string WriteTableRun(const TemporaryFolder& folder);

}  // namespace macaw::testing_support
