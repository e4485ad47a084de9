#include "worker/config.h"

#include <cstddef>
#include <span>

namespace macaw::worker {

using settings::AboveUpTo;
using settings::AtLeast;
using settings::Between;
using settings::Role;
using settings::Section;

namespace {

constexpr double kMostSeconds = 1e9;  // more than 30 years

Section<EmulationConfig> EmulationSection() {
  using E = EmulationConfig;
  Section<E> f;
  f.Add("workers.slowdown", &E::slowdown,
        "emulation: factor on the time of each of the run's slots, in their order", AtLeast(1));
  f.AddChoice("emulation.environment", &E::environment, {"none", "ratio", "cos"},
              "uneven hardware as FedML Parrot emulates it: by slot, or by slot and round");
  f.Add("emulation.ratio", &E::ratio, "how uneven the hardware is", AtLeast(0))
      .Needs([](const E& emulation) { return emulation.environment != "none"; },
             "emulation.environment = \"ratio\" or \"cos\"");
  const auto may_pause = [](const E& emulation) { return emulation.pause_probability > 0; };
  const char* const pauses = "emulation.pause_probability above 0";
  f.Add("emulation.pause_probability", &E::pause_probability,
        "probability that a client's turn is longer by emulation.pause_seconds", Between(0, 1))
      .Needs([](const E& emulation) { return emulation.pause_seconds > 0; },
             "emulation.pause_seconds above 0");
  f.Add("emulation.pause_seconds", &E::pause_seconds, "length of a pause, in seconds",
        Between(0, kMostSeconds))
      .Needs(may_pause, pauses);
  f.Add("emulation.seed", &E::seed, "seed of the pauses")
      .Needs(
          [](const E& emulation) {
            return emulation.pause_probability > 0 && emulation.pause_seconds > 0;
          },
          "emulation.pause_probability and emulation.pause_seconds above 0");
  return f;
}

Section<training::ProgramOptions> ProgramSection() {
  using P = training::ProgramOptions;
  Section<P> f;
  f.Add("workers.command", &P::command,
        "your own training program with its arguments, one process a slot "
        "(docs/guides/own-program.md)");
  f.AddPath("workers.folder", &P::folder,
            "folder in which workers.command runs; default: beside this file");
  f.Add("workers.turn_seconds", &P::turn_seconds,
        "seconds that workers.command may take for a client; after them it is started again",
        AboveUpTo(0, kMostSeconds));
  f.Add("workers.give_rows", &P::give_rows,
        "workers.command gets its clients' rows from the worker, normalised and with the clients' "
        "own noise; default: it reads rows of its own")
      .As(Role::kResult);
  return f;
}

Section<training::BackendChoice> BackendSection() {
  using B = training::BackendChoice;
  Section<B> f;
  f.AddPath("workers.backend", &B::name,
            "what trains the clients: the fused kernels, LibTorch, GPUs, workers.command, or a "
            "module of your own; auto: the fused kernels where they can. It decides the last bits, "
            "so all workers of a run need the same (but see server.mixed_profiles)")
      .Expecting("\"auto\", \"fused\", \"torch\", \"cuda\", \"process\" or a path")
      .choices = {"auto", "fused", "torch", "cuda", "process"};
  f.AddChoice("workers.instruction_set", &B::instruction_set,
              {"auto", "portable", "sse4", "avx2", "avx512", "neon"},
              "instructions of the fused kernels; auto: the processor's best. It decides the last "
              "bits, so all "
              "workers of a run need the same")
      .Needs(
          [](const B& backend) {
            return !settings::Contains({"torch", "cuda", "process"}, backend.name);
          },
          "workers.backend = \"auto\" or \"fused\"");
  f.Add("workers.devices", &B::devices,
        "GPUs of backend = \"cuda\" or \"torch\", such as [\"cuda:0\", \"cuda:1\"]; default: of "
        "\"cuda\" all that the process can see, of \"torch\" none")
      .Needs(
          [](const B& backend) {
            return settings::Contains({"torch", "cuda"}, backend.name);
          },
          "workers.backend = \"cuda\" or \"torch\"");
  const size_t before = f.fields().size();
  f.AddSection("", &B::program, ProgramSection());
  for (settings::Field<B>& field : std::span(f.fields()).subspan(before)) {
    field.Needs([](const B& backend) { return backend.name == "process"; },
                "workers.backend = \"process\"");
  }
  return f;
}

}  // namespace

Section<FleetConfig> FleetSection() {
  using F = FleetConfig;
  Section<F> f;
  f.Add("node.server", &F::server,
        "host:port of the fleet's server, for a worker that is started by hand");
  f.AddPath("node.identity", &F::identity,
            "folder with the node's key and certificates, which `macaw-worker enrol` fills");
  f.Add("node.max_upload", &F::max_upload,
        "largest rate at which this node sends, in bytes a second over some seconds; 0: no limit",
        AtLeast(0));
  f.Add(
      "node.max_download", &F::max_download,
      "largest rate at which this node receives, in bytes a second over some seconds; 0: no limit",
      AtLeast(0));
  f.Add(
      "node.files_from", &F::files_from,
      "bytes from which on vectors, sums and blobs lie in files of the worker's --scratch folder, "
      "4 MiB at least: where memory is short, the system writes them back; 0: all are in memory",
      AtLeast(0));
  f.Add("node.owner", &F::owner,
        "whether the clients of [data] are this node's own: no other node trains them, and their "
        "rows never leave it");
  f.Add(
      "node.redact_errors", &F::redact_errors,
      "whether the server learns only the kind of reason why a client cannot be trained; the words "
      "stay in this node's log");
  f.AddSection("accept", &F::accept, AcceptSection());
  for (settings::Field<F>& field : f.fields()) field.role = Role::kCompute;
  return f;
}

Section<WorkersConfig> WorkersSection() {
  using W = WorkersConfig;
  Section<W> f;
  f.Add("workers.processes", &W::processes, "number of worker processes", AtLeast(1));
  f.Add("workers.owners", &W::owners,
        "number of the first clients that get a process each, and a folder with only their own "
        "rows: a rehearsal of a deployment",
        Between(0, 10000));
  f.Add("workers.slots", &W::slots,
        "clients that a worker process trains at a time; 0: its share of the cores that it may use "
        "(affinity, cgroup), or for backend = \"cuda\" 512 a GPU",
        Between(0, kMostSlots));
  f.AddSection("", &W::backend, BackendSection());
  f.AddSection("", &W::emulation, EmulationSection());
  for (settings::Field<W>& field : f.fields()) field.role = Role::kCompute;
  return f;
}
}  // namespace macaw::worker
