#include "plan/model.h"

namespace macaw {

using settings::AtLeast;
using settings::Role;

std::vector<std::string> ModelConfig::FrozenGlobs() const {
  if (adapters.empty() && trained.empty()) return frozen;
  std::vector<std::string> globs = {"*"};
  if (!adapters.empty()) globs.insert(globs.end(), {"!*.lora_A.weight", "!*.lora_B.weight"});
  for (const std::string& glob : trained)
    globs.push_back(glob.starts_with('!') ? glob.substr(1) : "!" + glob);
  globs.insert(globs.end(), frozen.begin(), frozen.end());
  return globs;
}

settings::Section<ModelConfig> ModelSection() {
  settings::Section<ModelConfig> f;
  f.Add("name", &ModelConfig::name, "name of a model; `macaw models` lists them")
      .Hidden([](const ModelConfig& m) {
        return m.name == "layers" || m.name == "torchscript" || m.name == "program";
      });
  f.Add("layers", &ModelConfig::layers,
        "list of layers, instead of model.name: [\"conv 32 5 pad 2\", \"relu\", …]")
      .InsteadOf({"name"});
  f.Add("script_digest", &ModelConfig::script_digest,
        "digest of the file model.torchscript, the same on every worker; filled in")
      .As(Role::kDerived);
  f.Add("tensors", &ModelConfig::tensors,
        "tensors of the scripted module: [\"parameter fc.weight 10 784\", …]; filled in, or given "
        "where only workers.command knows the model")
      .As(Role::kDerived);
  f.AddSeed("seed", &ModelConfig::seed, "seed of the initial weights; default: run.seed");
  f.Add("input_shape", &ModelConfig::input_shape, "shape of one example; default: the data's",
        AtLeast(1))
      .As(Role::kDerived);
  f.Add("classes", &ModelConfig::classes, "number of outputs; default: the data's classes",
        AtLeast(1))
      .Hidden([](const ModelConfig& m) { return m.classes == 0; });
  f.Add("bias", &ModelConfig::bias, "whether the model \"logistic\" has a bias")
      .Needs([](const ModelConfig& m) { return m.name == "logistic"; },
             "model.name = \"logistic\" (a line of model.layers takes the word nobias)");
  f.Add("frozen", &ModelConfig::frozen,
        "tensors that are not trained and not sent, by name or pattern: [\"0.*\", \"2.bias\"]");
  f.Add("adapters", &ModelConfig::adapters,
        "low-rank adapters of linear layers, \"lora RANK [alpha A] [start zero|pissa] PATTERN\" on "
        "the names of their weights: [\"lora 8 0.*\"]; other tensors are frozen");
  f.Add("trained", &ModelConfig::trained,
        "tensors that are trained, by name or pattern, beside adapters; all others are frozen: "
        "[\"4.*\"]");
  f.AddChoice("buffers", &ModelConfig::buffers, {"mean", "local", "server"},
              "batch-norm statistics. mean: aggregated; local: kept by each client (fedbn); "
              "server: frozen");
  return f;
}

}  // namespace macaw
