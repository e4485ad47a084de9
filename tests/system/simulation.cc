#include "tests/system/simulation.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/fd.h"
#include "core/files.h"

namespace macaw::testing_support {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const std::string& path) {
  const auto text = ReadFile(path);
  return text.ok() ? *text : "";
}

std::vector<nlohmann::json> EventsIn(const std::string& folder) {
  std::vector<nlohmann::json> events;
  for (const absl::string_view line :
       absl::StrSplit(TextOf(folder + "/events.jsonl"), '\n', absl::SkipEmpty())) {
    auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object()) events.push_back(std::move(event));
  }
  return events;
}

// Of all runs of this process: goes away when its tests have passed, else it stays to be looked at.
std::string Scratch() { return absl::StrCat(testing::TempDir(), "macaw-", ::getpid()); }

class ScratchRemover final : public testing::Environment {
  void TearDown() override {
    std::error_code ignored;
    if (testing::UnitTest::GetInstance()->Passed()) fs::remove_all(Scratch(), ignored);
  }
};
[[maybe_unused]] const auto* const kScratchRemover =
    testing::AddGlobalTestEnvironment(new ScratchRemover);

std::string FreshFolder(const std::string& name) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder =
      absl::StrCat(Scratch(), "/", info == nullptr ? "" : info->name(), "/", name);
  fs::remove_all(folder);
  fs::create_directories(fs::path(folder).parent_path());
  return folder;
}

}  // namespace

Simulation::Simulation(const std::string& name, std::vector<std::string> arguments,
                       const std::string& macaw) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--out" || arguments[i] == "--resume") folder_ = arguments[i + 1];
  }
  if (folder_.empty()) {
    folder_ = FreshFolder(name);
    arguments.insert(arguments.end(), {"--out", folder_});
  }
  output_path_ = absl::StrCat(FreshFolder(name + ".out"));
  arguments.insert(arguments.begin(), "simulate");
  program_.emplace(macaw, std::move(arguments), output_path_);
}

int Simulation::Wait() { return program_->Wait(); }
bool Simulation::running() const { return program_->running(); }
void Simulation::Signal(int signal) const { program_->Signal(signal); }
std::string Simulation::output() const { return TextOf(output_path_); }
std::string Simulation::metrics() const { return TextOf(folder_ + "/metrics.jsonl"); }

nlohmann::json Simulation::summary() const {
  return nlohmann::json::parse(TextOf(folder_ + "/summary.json"), nullptr,
                               /*allow_exceptions=*/false);
}

std::string Simulation::digest() const {
  const nlohmann::json all = summary();
  return all.is_object() ? all.value("model_digest", "") : "";
}

std::vector<nlohmann::json> Simulation::events() const { return EventsIn(folder_); }

bool Simulation::WaitForChange(const std::string& path, const std::function<bool()>& found) const {
  const Fd watch(::inotify_init1(IN_CLOEXEC));
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, program_->pid(), 0)));
  ::inotify_add_watch(watch.get(), path.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO);
  bool done = false;
  while (!done) {
    done = found();
    if (done || !running()) break;
    pollfd fds[] = {{.fd = watch.get(), .events = POLLIN}, {.fd = process.get(), .events = POLLIN}};
    ::poll(fds, 2, -1);
    char buffer[4096];
    if ((fds[0].revents & POLLIN) != 0 && ::read(watch.get(), buffer, sizeof(buffer)) < 0) break;
  }
  return done;
}

bool Simulation::WaitForEvent(const std::function<bool(const nlohmann::json&)>& condition,
                              const std::string& folder) const {
  const std::string& watched = folder.empty() ? folder_ : folder;
  std::error_code ignored;
  fs::create_directories(watched, ignored);
  return WaitForChange(watched, [&] { return std::ranges::any_of(EventsIn(watched), condition); });
}

bool Simulation::WaitForANewRound() const {
  uint32_t newest = 0;
  const auto is_newer = [&](const nlohmann::json& event) {
    return event["event"] == "round" && event["round"].get<uint32_t>() > newest;
  };
  for (const nlohmann::json& event : events()) {
    if (is_newer(event)) newest = event["round"].get<uint32_t>();
  }
  return WaitForEvent(is_newer);
}

bool Simulation::WaitForOutput(const std::string& text, int times) const {
  return WaitForChange(output_path_, [&] {
    const std::string all = output();
    int found = 0;
    for (size_t at = 0; (at = all.find(text, at)) != std::string::npos; at += text.size()) ++found;
    return found >= times;
  });
}

std::vector<pid_t> Simulation::Children(const std::string& program) const {
  std::vector<pid_t> children;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string stat = TextOf(entry.path().string() + "/stat");
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (close == std::string::npos) continue;
    const std::vector<std::string> fields = absl::StrSplit(stat.substr(close + 2), ' ');
    const bool alive = fields[0] != "Z";
    if (alive && fields[1] == std::to_string(program_->pid()) &&
        stat.substr(open + 1, close - open - 1) == program) {
      children.push_back(pid);
    }
  }
  std::sort(children.begin(), children.end());
  return children;
}

Printed RunMacaw(const std::string& arguments) {
  return RunProgram(MACAW_BIN_DIR "/macaw", arguments);
}

std::string MacawWith(const std::string& program, const std::string& script) {
  const std::string folder = FreshFolder("programs"), macaw = folder + "/macaw";
  fs::create_directories(folder);
  // A symbolic link would have the programs beside the real one.
  std::error_code error;
  fs::create_hard_link(MACAW_BIN_DIR "/macaw", macaw, error);
  if (error) fs::copy_file(MACAW_BIN_DIR "/macaw", macaw);
  for (const char* other : {"macaw-server", "macaw-worker"}) {
    const std::string path = absl::StrCat(folder, "/", other);
    const std::string real = absl::StrCat(MACAW_BIN_DIR, "/", other);
    if (other != program) {
      fs::create_symlink(real, path);
      continue;
    }
    std::ofstream(path) << "#!/bin/sh\nreal=" << real << "\nfolder=" << folder << "\n" << script;
    fs::permissions(path, fs::perms::owner_all);
  }
  return macaw;
}

Printed RunProgram(const std::string& program, const std::string& arguments) {
  return RunShell(absl::StrCat(program, " ", arguments));
}

std::string WriteConfig(const std::string& name, const std::string& more) {
  const std::string path = FreshFolder(name + ".toml");
  std::ofstream(path) << absl::StrCat(R"([run]
name = "test"
rounds = 3
seed = 7
checkpoint_every = 1
[data]
source = "idx"
path = ")" MACAW_SOURCE_DIR R"(/examples/data/mnist/t10k-images-idx3-ubyte.gz"
[partition]
scheme = "dirichlet-class"
concentration = 0.3
clients = 200
[model]
name = "lenet5"
[cohort]
size = 24
[local]
epochs = 1
batch_size = 10
lr = 0.05
[server]
lease_timeout = 5
)",
                                      more);
  return path;
}

std::vector<std::string> Pauses(const std::string& seconds) {
  return {"workers.slots=2", "emulation.pause_probability=1", "emulation.pause_seconds=" + seconds};
}

std::vector<std::string> ResumeWithoutPauses(const Simulation& simulation) {
  return {"--resume", simulation.folder(), "--set", "emulation.pause_probability=0"};
}

bool AllGone(const std::vector<pid_t>& processes) {
  for (const pid_t pid : processes) {
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process.open()) continue;
    pollfd fd{.fd = process.get(), .events = POLLIN};
    if (::poll(&fd, 1, 10000) == 0) return false;
  }
  return true;
}

}  // namespace macaw::testing_support
