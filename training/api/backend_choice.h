#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace macaw::training {

// The owner's own training program (training/process), of the node.
struct ProgramOptions {
  std::vector<std::string> command;  // workers.command
  std::string folder;                // in which it runs; empty: where this process does
  double turn_seconds = 3600;        // the longest that one answer may take
  bool give_rows = false;            // it gets its clients' rows; else it has rows of its own
  // Not of the file: the number of this process's first slot among those of its host's workers, and
  // how many those are. A program is told its own, so that slots can share devices out.
  uint32_t first_slot = 0, slots = 1;
  friend bool operator==(const ProgramOptions&, const ProgramOptions&) = default;
};

// What a node's file says of the back end that trains its clients ([workers]).
struct BackendChoice {
  std::string name = "auto";  // "auto", a name, or the path of a module (training/backends.h)
  // Of the fused kernels: a name of training/fused/isa.h, or "auto" for the best one here.
  std::string instruction_set = "auto";
  // "cuda:0"; empty: of "cuda" all that the process can see, of "torch" the processor.
  std::vector<std::string> devices;
  ProgramOptions program;  // of "process"
  friend bool operator==(const BackendChoice&, const BackendChoice&) = default;
};

}  // namespace macaw::training
