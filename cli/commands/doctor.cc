#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/programs.h"
#include "core/child.h"
#include "core/cores.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

void PrintFact(absl::string_view what, absl::string_view text) {
  std::cout << absl::StrFormat("%-12s %s\n", what, text);
}

// The value of the first "key : value" line in a /proc file.
std::string ProcValue(const std::string& path, absl::string_view key) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return "";
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == key)
      return std::string(absl::StripAsciiWhitespace(parts.second));
  }
  return "";
}

std::string Gibibytes(double bytes) { return absl::StrFormat("%.1f GiB", bytes / (1 << 30)); }

// "16316412 kB"
std::string MemoryText(const std::string& key) {
  uint64_t kilobytes = 0;
  const std::string text = ProcValue("/proc/meminfo", key);
  return absl::SimpleAtoi(absl::StripSuffix(text, " kB"), &kilobytes)
             ? Gibibytes(static_cast<double>(kilobytes) * 1024)
             : "unknown";
}

std::string VectorExtensions() {
  const std::string flags = absl::StrCat(" ", ProcValue("/proc/cpuinfo", "flags"), " ");
  std::vector<std::string> present;
  for (const char* flag : {"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (absl::StrContains(flags, absl::StrCat(" ", flag, " "))) present.push_back(flag);
  }
  return absl::StrJoin(present, " ");
}

std::string FindProgram(absl::string_view name) {
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin" : path, ':')) {
    std::string file = absl::StrCat(folder, "/", name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// A program's output, standard error included; empty if it cannot be run.
std::string OutputOf(const std::vector<std::string>& argv) {
  absl::StatusOr<PipePair> pipe = MakePipe();
  if (!pipe.ok()) return "";
  absl::StatusOr<Child> child = Child::Spawn(
      {.name = argv[0], .argv = argv, .log = absl::StrCat("/proc/self/fd/", pipe->write.get())});
  pipe->write.Close();
  if (!child.ok()) return "";
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(pipe->read.get(), buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  return child->Reap().ok() ? text : "";
}

void PrintDisk() {
  // The folder where runs/ is or would be.
  const std::string folder = FileExists("runs") ? "runs" : ".";
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return;
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  std::error_code error;
  PrintFact("disk", absl::StrCat(Gibibytes(free), " free for ",
                                 std::filesystem::absolute("runs", error).string(),
                                 ::access(folder.c_str(), W_OK) == 0 ? "" : " (not writable)"));
}

void PrintGpus() {
  std::error_code error;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    PrintFact("gpu", ProcValue(entry.path().string() + "/information", "Model"));
    ++count;
  }
  if (count == 0) PrintFact("gpu", "none (the CPU trainers need none)");
}

void PrintBackends() {
  const absl::StatusOr<std::string> folder = ProgramFolder();
  const std::string text = folder.ok() ? OutputOf({*folder + "/macaw-worker", "--doctor"}) : "";
  if (text.empty()) {
    PrintFact("back end", "macaw-worker is missing beside macaw or does not start");
    return;
  }
  std::cout << text;
}

int Doctor() {
  PrintFact("macaw", MACAW_VERSION);
  PrintFact("kernel",
            absl::StripAsciiWhitespace(ReadFile("/proc/sys/kernel/osrelease").value_or("unknown")));
  const uint32_t cores = std::thread::hardware_concurrency(), usable = UsableCores();
  PrintFact("cpu", absl::StrCat(ProcValue("/proc/cpuinfo", "model name"), ", ", cores, " cores",
                                usable < cores ? absl::StrCat(", of which this process may use ",
                                                              usable, " (affinity, cgroup)")
                                               : ""));
  PrintFact("vectors", VectorExtensions());
  PrintFact("memory",
            absl::StrCat(MemoryText("MemTotal"), ", ", MemoryText("MemAvailable"), " available"));
  PrintDisk();
  const std::string redis = FindProgram("redis-server");
  PrintFact("redis", redis.empty() ? "no redis-server (needed for client state on many hosts only)"
                                   : absl::StripAsciiWhitespace(OutputOf({redis, "--version"})));
  PrintGpus();
  PrintBackends();
  return kExitOk;
}

}  // namespace

void AddDoctor(CLI::App& app, std::function<int()>& run) {
  app.add_subcommand("doctor",
                     "What this machine offers a run; with --server ADDR, whether that server can "
                     "be reached")
      ->final_callback([&run] { run = Doctor; });
}

}  // namespace macaw::cli
