#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace macaw::cli {

// Each of these adds a verb of `macaw`, or a few that belong together, with its options and its
// help. When the verb is given, `run` becomes what is to be done: it prints to standard output,
// reports errors to standard error, and returns the program's exit code. A verb is in the file of
// its name.
void AddSimulate(CLI::App& app, std::function<int()>& run);
void AddData(CLI::App& app, std::function<int()>& run);
void AddLists(CLI::App& app, std::function<int()>& run);  // models, partitions, keys, algorithms
void AddDevices(CLI::App& app, std::function<int()>& run);
void AddDoctor(CLI::App& app, std::function<int()>& run);
void AddPrivacy(CLI::App& app, std::function<int()>& run);
void AddNew(CLI::App& app, std::function<int()>& run);  // project.cc
void AddPlugin(CLI::App& app, std::function<int()>& run);
void AddState(CLI::App& app, std::function<int()>& run);
void AddTimeline(CLI::App& app, std::function<int()>& run);
void AddReport(CLI::App& app, std::function<int()>& run);
void AddWatch(CLI::App& app, std::function<int()>& run);
void AddTrack(CLI::App& app, std::function<int()>& run);
void AddModel(CLI::App& app, std::function<int()>& run);
void AddLog(CLI::App& app, std::function<int()>& run);
void AddReplay(CLI::App& app, std::function<int()>& run);
void AddCompare(CLI::App& app, std::function<int()>& run);
void AddContribution(CLI::App& app, std::function<int()>& run);
void AddDiff(CLI::App& app, std::function<int()>& run);
void AddBundle(CLI::App& app, std::function<int()>& run);
void AddVerify(CLI::App& app, std::function<int()>& run);
void AddSweep(CLI::App& app, std::function<int()>& run);
void AddPlan(CLI::App& app, std::function<int()>& run);
void AddPki(CLI::App& app, std::function<int()>& run);
void AddAudit(CLI::App& app, std::function<int()>& run);  // pki.cc

// `macaw keys`, `macaw simulate --help-config`: prints every key of a configuration.
int PrintConfigHelp();

}  // namespace macaw::cli
