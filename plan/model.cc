#include "plan/model.h"

namespace macaw {

using settings::AtLeast;
using settings::Role;

settings::Section<ModelConfig> ModelSection() {
  settings::Section<ModelConfig> f;
  f.Add("name", &ModelConfig::name, "a name of `macaw models`").Hidden([](const ModelConfig& m) {
    return m.name == "layers" || m.name == "torchscript" || m.name == "program";
  });
  f.Add("layers", &ModelConfig::layers, "… or the layers: [\"conv 32 5 pad 2\", \"relu\", …]")
      .InsteadOf({"name"});
  f.Add("script_digest", &ModelConfig::script_digest,
        "of the file model.torchscript, which every worker's must have; filled in")
      .As(Role::kDerived);
  f.Add("tensors", &ModelConfig::tensors,
        "of the scripted module: [\"parameter fc.weight 10 784\", …]; filled in, or given where "
        "workers.command alone knows the model")
      .As(Role::kDerived);
  f.AddSeed("seed", &ModelConfig::seed, "of the initial weights; default: run.seed");
  f.Add("input_shape", &ModelConfig::input_shape, "one example's; default: the data's", AtLeast(1))
      .As(Role::kDerived);
  f.Add("classes", &ModelConfig::classes, "outputs; default: the data's", AtLeast(1))
      .Hidden([](const ModelConfig& m) { return m.classes == 0; });
  f.Add("bias", &ModelConfig::bias, "false: the model \"logistic\" without its bias")
      .Needs([](const ModelConfig& m) { return m.name == "logistic"; },
             "model.name = \"logistic\" (a line of model.layers takes the word nobias)");
  f.AddChoice("buffers", &ModelConfig::buffers, {"mean", "local", "server"},
              "batch-norm statistics: aggregated, each client's own (by fedbn), moved by nobody");
  return f;
}

}  // namespace macaw
