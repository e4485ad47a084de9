#include "plan/local.h"

namespace macaw {

using settings::Above;
using settings::AtLeast;
using settings::Below;
using settings::Between;

namespace {

settings::Section<Schedule> ScheduleSection() {
  settings::Section<Schedule> f;
  f.AddChoice("kind", &Schedule::kind, {"constant", "step", "exponential", "cosine"},
              "schedule of the learning rate over rounds; lr_schedule = \"cosine\" works, too");
  const auto is = [](const char* kind) {
    return [kind](const Schedule& schedule) { return schedule.kind == kind; };
  };
  const auto multiplies = [](const Schedule& schedule) {
    return schedule.kind == "step" || schedule.kind == "exponential";
  };
  f.Add("gamma", &Schedule::gamma, "step, exponential: factor on the learning rate", Above(0))
      .Needs(multiplies, "local.lr_schedule.kind = \"step\" or \"exponential\"");
  f.Add("every", &Schedule::every, "step: rounds between factors", AtLeast(1))
      .Needs(is("step"), "local.lr_schedule.kind = \"step\"");
  f.Add("rounds", &Schedule::rounds,
        "cosine: length in rounds, warm-up included (without it: T_max of PyTorch); 0: run.rounds",
        AtLeast(0))
      .Needs(is("cosine"), "local.lr_schedule.kind = \"cosine\"");
  f.Add("floor", &Schedule::floor,
        "cosine: last factor on the learning rate, which also holds after the schedule",
        Between(0, 1))
      .Needs(is("cosine"), "local.lr_schedule.kind = \"cosine\"");
  f.Add("warmup_rounds", &Schedule::warmup_rounds,
        "rounds n of linear warm-up before the schedule: round r has r / (n + 1) of the rate",
        AtLeast(0));
  return f;
}

}  // namespace

settings::Section<LocalConfig> LocalSection() {
  using L = LocalConfig;
  settings::Section<L> f;
  f.Add("epochs", &L::epochs, "passes over a client's rows", AtLeast(1)).Hidden([](const L& local) {
    return local.steps > 0;
  });
  f.Add("steps", &L::steps, "exact number of steps, instead of local.epochs", AtLeast(1))
      .InsteadOf({"epochs"})
      .Hidden([](const L& local) { return local.steps == 0; });
  const auto sgd = [](const L& local) { return local.optimizer == "sgd"; };
  const char* const needs_sgd = "local.optimizer = \"sgd\"";
  f.Add("qsr", &L::qsr,
        "quadratic synchronisation rule: a round has (qsr / learning rate)^2 local steps, rounded "
        "down, where that is more than local.steps, but not in warm-up; 0: local.steps",
        AtLeast(0))
      .Needs([](const L& local) { return local.steps > 0; },
             "local.steps, the fewest steps of a round (the rule counts steps and not passes)")
      .Needs(sgd, "local.optimizer = \"sgd\" (the moments of adam start at zero each round)");
  f.Add("batch_size", &L::batch_size, "rows a step; 0: all of them", AtLeast(0));
  f.AddChoice("optimizer", &L::optimizer, {"sgd", "adam", "adamw"},
              "optimizer of the local steps; its state starts at zero each round");
  f.Add("lr", &L::lr, "learning rate in round 1; default with adam, adamw: 0.001", Above(0));
  const auto adam = [sgd](const L& local) { return !sgd(local); };
  const char* const needs_adam = "local.optimizer = \"adam\" or \"adamw\"";
  f.Add("momentum", &L::momentum, "momentum of SGD; it starts at zero each round", Below(0, 1))
      .Needs(sgd, needs_sgd);
  f.Add("nesterov", &L::nesterov, "whether the momentum has Nesterov's form")
      .Needs(sgd, needs_sgd)
      .Needs([](const L& local) { return local.momentum > 0; }, "local.momentum above 0");
  f.Add("beta1", &L::beta1, "adam, adamw: decay of the gradient's mean", Below(0, 1))
      .Needs(adam, needs_adam);
  f.Add("beta2", &L::beta2, "adam, adamw: decay of the squared gradient's mean", Below(0, 1))
      .Needs(adam, needs_adam);
  f.Add("epsilon", &L::epsilon, "adam, adamw: added to the root of the squared gradient's mean",
        Above(0))
      .Needs(adam, needs_adam);
  f.Add("weight_decay", &L::weight_decay,
        "factor on the weights that is added to the gradient; adamw: subtracted from the weights",
        AtLeast(0));
  f.Add("clip_norm", &L::clip_norm, "largest norm of a gradient; 0: no limit", AtLeast(0));
  f.AddChoice("clip", &L::clip, {"gradient", "corrected"},
              "what clip_norm limits: before the algorithm's correction, or after it")
      .Needs([](const L& local) { return local.clip_norm > 0; }, "local.clip_norm above 0");
  f.Add("class_weights", &L::class_weights, "weights of the loss, one a class; default: 1",
        Above(0));
  f.Add("label_smoothing", &L::label_smoothing, "label smoothing of the loss", Below(0, 1));
  f.Add("drop_last", &L::drop_last,
        "whether a last batch that is not full is left out; clients with fewer rows than a batch "
        "are then not drawn")
      .Needs([](const L& local) { return local.batch_size > 0; }, "local.batch_size above 0");
  f.Add("shuffle", &L::shuffle,
        "whether rows are shuffled each epoch; false: batches in stored order");
  f.AddChoice("precision", &L::precision, {"full", "bf16", "tf32"},
              "numbers of a pass through the model. full: those of run.dtype; bf16: products in "
              "bfloat16 (LibTorch's autocast); tf32: products of GPUs in TF32. The last two are "
              "trained by LibTorch");
  f.Add("micro_batch", &L::micro_batch,
        "rows of a batch that pass through the model at a time, which takes less memory: their "
        "gradients are added up for one step of the whole batch, and batch norm sees them alone; "
        "LibTorch's; 0: the whole batch",
        AtLeast(0));
  f.Add(
      "checkpoint", &L::checkpoint,
      "activation checkpointing: whether blocks and segments of layers keep their inputs alone and "
      "are computed again in the backward pass, which takes less memory and a third more time, and "
      "gives the same bits; LibTorch's");
  f.AddSection("lr_schedule", &L::lr_schedule, ScheduleSection());
  return f;
}

}  // namespace macaw
