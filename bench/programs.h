#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/child.h"
#include "identity/authority.h"
#include "identity/node_files.h"

// What benchmarks share that start programs and look at what these use.
namespace macaw::bench {

// Ends this program if the status is an error.
void Check(const absl::Status& status, absl::string_view what);

double Now();  // seconds, of a steady clock

// Of a program of this build.
std::string ProgramPath(const std::string& name);

// A program that runs beside this one (core/child.h), and is killed with this object or with the
// thread that started it.
class Program {
 public:
  // `log`: a file to which all its output goes; "": to standard error.
  explicit Program(std::vector<std::string> command, const std::string& log = "");
  // A server: `command` and two more arguments, `ready` and the number of a descriptor to which it
  // writes its address. Waits for that.
  Program(std::vector<std::string> command, const std::string& ready, const std::string& log);

  const std::string& address() const { return address_; }  // of a server
  double Megabytes() const;                                // PSS
  double CpuSeconds() const;                               // user and system, so far
  size_t Descriptors() const;                              // open ones
  bool Runs();                                             // it has not ended

  struct End {
    double cpu_seconds = 0, peak_megabytes = 0;  // of memory: RSS
    bool good = false;                           // its exit code is 0
  };
  // Waits for it. Every call returns the same.
  End Wait();

 private:
  void Start(std::vector<std::string> command, const std::string& log, std::vector<int> kept);

  std::optional<Child> child_;  // none: it has ended
  End end_;
  std::string address_;
};

// Runs a program to its end. If it fails, ends this one with what it has printed.
void RunProgram(std::vector<std::string> command);

// A new folder that is removed with this object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A certificate of the node with this name, which owns the client with this name. Its files are in
// `folder`, which is made.
identity::IdentityFiles Certify(identity::Authority& authority, const std::string& folder,
                                const std::string& node, const std::string& client,
                                identity::Role role = identity::Role::kDevice);

// The digest of the model that a run ended with.
std::string ModelDigest(const std::string& run_dir);

}  // namespace macaw::bench
