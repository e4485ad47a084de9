#include "cli/config/fields.h"

#include <limits>

#include "cli/config/field_types.h"
#include "cli/config/special_fields.h"
#include "data/partition.h"
#include "scheduler/plan.h"
#include "state/redis_url.h"

namespace macaw::cli {
namespace {

using Fields = std::vector<Field>;

std::vector<std::string> Names(const std::vector<data::Choice>& choices) {
  std::vector<std::string> names;
  for (const data::Choice& choice : choices) names.push_back(choice.name);
  return names;
}

// A key of data.normalise. Until it is given it holds what the data itself suggests. A list may be
// given as empty, which differs from not giving it.
Field Normalise(bool NormaliseGiven::*key, Field field) {
  field.set = [key, set = field.set](Config& config, const Value& value) {
    const bool taken = set(config, value);
    if (taken) config.normalise_given.*key = true;
    return taken;
  };
  field.get = [key, get = field.get](const Config& config) -> std::optional<Value> {
    if (!(config.normalise_given.*key)) return std::nullopt;
    std::optional<Value> value = get(config);
    return value.has_value() ? std::move(value) : Value{Array{}};
  };
  field.reset = [key, reset = field.reset](Config& config) {
    reset(config);
    config.normalise_given.*key = false;
  };
  return field;
}

void AddRun(Fields& f) {
  f.push_back(Plain("run.name", AT(run.name), "default: the file's name"));
  f.push_back(Plain("run.rounds", AT(run.rounds), "how many rounds", AtLeast(1)));
  f.push_back(Plain("run.clients", AT(run.clients),
                    "the population; filled in from the data where `macaw simulate` sees it",
                    AtLeast(0)));
  f.push_back(Plain("run.train_clients", AT(run.train_clients),
                    "clients with training rows, 0: all; filled in likewise", AtLeast(0)));
  f.push_back(Plain("run.train_examples", AT(run.train_examples),
                    "training rows of the population; filled in likewise", AtLeast(0)));
  f.push_back(Plain("run.train_tokens", AT(run.train_tokens),
                    "training tokens of the population, of sequences; filled in likewise",
                    AtLeast(0)));
  f.push_back(
      Plain("run.seed", AT(run.seed), "of everything that has no seed of its own", AtLeast(0)));
  f.push_back(Path("run.out", AT(output.out),
                   "the run's folder; default: runs/<name> (-2, -3, … when taken)"));
  f.push_back(Choice(
      "run.task", AT(task), {"auto", "classification", "binary", "regression", "next-token"},
      "loss and metrics; auto: next-token where rows are tokens, classification where labels "
      "are classes, else regression"));
  f.push_back(DTypeField());
  f.push_back(Plain("run.contribution_bound", AT(run.contribution_bound),
                    "a client's update with a larger |value| is refused", Above(0)));
  f.push_back(Plain("run.checkpoint_every", AT(output.checkpoint_every),
                    "rounds between checkpoints", AtLeast(1)));
  f.push_back(Plain("run.client_records", AT(output.client_records),
                    "also write clients.jsonl, a row per client and round"));
  f.push_back(Plain("run.stop.metric", AT(output.stop.metric),
                    "end early when this column of metrics.jsonl …"));
  f.push_back(StopAtLeast());
  f.push_back(HiddenIf(Plain("run.stop.patience", AT(output.stop.patience),
                             "… has not improved for so many evaluations", AtLeast(1)),
                       [](const Config& c) { return c.output.stop.patience == 0; }));
}

void AddData(Fields& f) {
  f.push_back(DataSourceField({}));
  f.push_back(Path("data.path", AT(data.path), "file or folder"));
  f.push_back(
      Path("data.test_path", AT(data.test_path), "a second file of the same kind, for tests"));
  f.push_back(Plain("data.seed", AT(data.seed), "of splits and generated data; default: run.seed",
                    AtLeast(0)));
  f.push_back(Plain("data.test_fraction", AT(data.test_fraction),
                    "of all rows, set aside centrally where the source has no test set",
                    UpTo(0, 1)));
  f.push_back(
      Plain("data.val_fraction", AT(data.val_fraction), "of each client's rows", UpTo(0, 1)));
  f.push_back(Plain("data.heldout_clients", AT(data.heldout_clients),
                    "fraction of clients that never train", UpTo(0, 1)));
  f.push_back(ResidentField());
  f.push_back(Plain("data.classes", AT(data.classes),
                    "labels must be below; 0: as many as the data shows", AtLeast(0)));
  f.push_back(List("data.class_names", AT(class_names),
                   "for people, in the order of the classes; default: the data's own words"));
  f.push_back(LabelColumnField());
  f.push_back(ClientColumnField());
  f.push_back(List("data.drop_columns", AT(data.drop_columns),
                   "csv: columns that are neither label, client nor feature"));
  f.push_back(
      Plain("data.client_noise", AT(run.transform.client_noise),
            "Gaussian noise on a client's own features, the same in training and evaluation: "
            "level * (client + 1) / clients",
            AtLeast(0)));
  f.push_back(Normalise(&NormaliseGiven::scale,
                        Plain("data.normalise.scale", AT(run.transform.scale),
                              "x' = (x * scale - mean) / std; default: 1/255 for bytes, else 1")));
  f.push_back(Normalise(&NormaliseGiven::mean,
                        List("data.normalise.mean", AT(run.transform.mean),
                             "per channel, or one for all; default: the data's own, or 0")));
  f.push_back(
      Normalise(&NormaliseGiven::std,
                List("data.normalise.std", AT(run.transform.std),
                     "per channel, or one for all; default: the data's own, or 1", Above(0))));
  f.push_back(Plain("data.augment.pad_crop", AT(run.transform.pad_crop),
                    "pad by so many zeros, crop back at random", AtLeast(0)));
  f.push_back(
      Plain("data.augment.flip", AT(run.transform.flip), "mirror left-right with probability 1/2"));
  const auto synthetic = [&f](Field field) {  // may be in the file of a run of other data
    f.push_back(Needing(
        "", [](const Config& c) { return c.data.source == "synthetic"; }, std::move(field)));
  };
  synthetic(Plain("data.synthetic.clients", AT(data.synthetic.clients), "population", AtLeast(1)));
  synthetic(Plain("data.synthetic.alpha", AT(data.synthetic.alpha),
                  "standard deviation of the clients' model means", AtLeast(0)));
  synthetic(Plain("data.synthetic.beta", AT(data.synthetic.beta),
                  "standard deviation of the clients' feature means", AtLeast(0)));
  synthetic(Plain("data.synthetic.max_size", AT(data.synthetic.max_size),
                  "cap on a client's examples; 0: none", AtLeast(0)));
  synthetic(Plain("data.synthetic.iid", AT(data.synthetic.iid), "one model for everybody"));
}

void AddPartition(Fields& f) {
  f.push_back(Choice("partition.scheme", AT(partition.scheme), Names(data::PartitionSchemes()),
                     "who gets which rows; `macaw partitions`"));
  f.push_back(Plain("partition.clients", AT(partition.clients), "population", AtLeast(1)));
  f.push_back(Plain("partition.concentration", AT(partition.concentration),
                    "Dirichlet's parameter; sigma of lognormal; exponent of power-law", Above(0)));
  f.push_back(Plain("partition.classes_per_client", AT(partition.classes_per_client),
                    "of k-classes; shards a client for shards", AtLeast(1)));
  f.push_back(Plain("partition.min_size", AT(partition.min_size),
                    "fewest rows of a client, met by moving rows from the largest", AtLeast(0)));
  f.push_back(
      Path("partition.path", AT(partition.path), "scheme = file: JSON {\"client\": [row, …]}"));
  f.push_back(Plain("partition.seed", AT(partition.seed), "default: run.seed", AtLeast(0)));
}

void AddModel(Fields& f) {
  f.push_back(HiddenIf(
      Plain("model.name", AT(run.model.name), "a name of `macaw models`"),
      [](const Config& c) { return !c.run.model.layers.empty() || !c.model_script.empty(); }));
  f.push_back(List("model.layers", AT(run.model.layers),
                   "… or the layers: [\"conv 32 5 pad 2\", \"relu\", …]"));
  f.push_back(Path("model.torchscript", AT(model_script),
                   "… or a scripted module (torch.jit.save), whose values it starts from"));
  f.push_back(Plain("model.script_digest", AT(run.model.script_digest),
                    "of that file, which every worker's must have; filled in"));
  f.push_back(List("model.tensors", AT(run.model.tensors),
                   "of the scripted module: [\"parameter fc.weight 10 784\", …]; filled in"));
  Field init = Path("model.init", AT(model_init),
                    "safetensors file to start from, or \"zero\"; default: from the seed");
  init.choices = {"zero"};
  init.expected = "a path (a string) | \"zero\"";
  f.push_back(std::move(init));
  f.push_back(Plain("model.seed", AT(run.model.seed), "of the initial weights; default: run.seed",
                    AtLeast(0)));
  f.push_back(List("model.input_shape", AT(run.model.input_shape),
                   "one example's; default: the data's", AtLeast(1)));
  f.push_back(HiddenIf(
      Plain("model.classes", AT(run.model.classes), "outputs; default: the data's", AtLeast(1)),
      [](const Config& c) { return c.run.model.classes == 0; }));
  f.push_back(
      Plain("model.bias", AT(run.model.bias), "false: the model \"logistic\" without its bias"));
  f.push_back(
      Choice("model.buffers", AT(run.model.buffers), {"mean", "local", "server"},
             "batch-norm statistics: aggregated, each client's own (by fedbn), moved by nobody"));
}

void AddRound(Fields& f) {
  f.push_back(Plain("algorithm.name", AT(run.algorithm.name),
                    "a name of `macaw algorithms`; parameters in [algorithm.NAME]"));
  f.push_back(HiddenIf(Plain("cohort.size", AT(run.cohort.size), "clients a round", AtLeast(1)),
                       [](const Config& c) { return c.run.cohort.size == 0; }));
  f.push_back(
      HiddenIf(Plain("cohort.fraction", AT(cohort_fraction), "… or a fraction of the population",
                     {.least = 0, .most = 1, .open_least = true}),
               [](const Config& c) { return c.cohort_fraction == 0; }));
  f.push_back(
      Choice("cohort.sampling", AT(run.cohort.sampling),
             {"uniform", "proportional", "poisson", "sweep", "available"},
             "distinct; with replacement by examples (needs uniform weights); each on its own; "
             "everybody once before anybody again; distinct ones of those who are there"));
  f.push_back(WeightField());
  f.push_back(Plain("cohort.seed", AT(run.cohort.seed), "default: run.seed", AtLeast(0)));
  f.push_back(Plain("cohort.straggler_fraction", AT(run.cohort.straggler_fraction),
                    "of the clients: too slow for their whole work in a round", Between(0, 1)));
  f.push_back(Choice("cohort.straggler_policy", AT(run.cohort.straggler_policy),
                     {"partial", "drop"},
                     "what stragglers do: 1 to epochs-1 epochs (or steps), or nothing"));
  const auto by_availability = [&f](Field field) {
    f.push_back(Needing(
        "cohort.sampling = \"available\"",
        [](const Config& c) { return c.run.cohort.sampling == "available"; }, std::move(field)));
  };
  by_availability(Plain("cohort.availability", AT(run.cohort.availability),
                        "probability that a client is there in a round",
                        {.least = 0, .most = 1, .open_least = true}));
  by_availability(Plain("cohort.availability_swing", AT(run.cohort.availability_swing),
                        "part of it that follows the day, each client with a phase of its own",
                        Between(0, 1)));
  by_availability(Plain("cohort.availability_day", AT(run.cohort.availability_day),
                        "rounds of a day", AtLeast(1)));
  f.push_back(Plain("cohort.over_selection", AT(run.cohort.over_selection),
                    "times cohort.size are asked, and the first cohort.size to report are kept",
                    AtLeast(1)));
  const auto over = [&f](Field field) {
    f.push_back(Needing(
        "cohort.over_selection > 1",
        [](const Config& c) { return c.run.cohort.over_selection > 1; }, std::move(field)));
  };
  over(Plain("cohort.device_spread", AT(run.cohort.device_spread),
             "of ln(seconds a row), between clients: who reports first", AtLeast(0)));
  over(Plain("cohort.round_spread", AT(run.cohort.round_spread),
             "of ln(seconds), between a client's rounds", AtLeast(0)));
}

void AddLocal(Fields& f) {
  f.push_back(HiddenIf(
      Plain("local.epochs", AT(run.local.epochs), "passes over a client's rows", AtLeast(1)),
      [](const Config& c) { return c.run.local.steps > 0; }));
  f.push_back(
      HiddenIf(Plain("local.steps", AT(run.local.steps), "… or exactly so many steps", AtLeast(1)),
               [](const Config& c) { return c.run.local.steps == 0; }));
  f.push_back(Plain("local.batch_size", AT(run.local.batch_size), "rows a step; 0: all of them",
                    AtLeast(0)));
  f.push_back(Choice("local.optimizer", AT(run.local.optimizer), {"sgd", "adam", "adamw"},
                     "of the local steps; its state starts afresh each round"));
  f.push_back(Plain("local.lr", AT(run.local.lr), "learning rate in round 1", Above(0)));
  f.push_back(
      Plain("local.momentum", AT(run.local.momentum), "starts afresh each round", UpTo(0, 1)));
  f.push_back(Plain("local.nesterov", AT(run.local.nesterov), "Nesterov's form of the momentum"));
  f.push_back(Plain("local.beta1", AT(run.local.beta1), "adam, adamw: decay of the gradient's mean",
                    UpTo(0, 1)));
  f.push_back(Plain("local.beta2", AT(run.local.beta2),
                    "adam, adamw: decay of the squared gradient's mean", UpTo(0, 1)));
  f.push_back(Plain("local.epsilon", AT(run.local.epsilon),
                    "adam, adamw: added to the root of the squared gradient's mean", Above(0)));
  f.push_back(Plain("local.weight_decay", AT(run.local.weight_decay),
                    "times the weights, added to the gradient; adamw: taken off the weights",
                    AtLeast(0)));
  f.push_back(Plain("local.clip_norm", AT(run.local.clip_norm),
                    "largest norm of a gradient; 0: no limit", AtLeast(0)));
  f.push_back(Choice("local.clip", AT(run.local.clip), {"gradient", "corrected"},
                     "what clip_norm limits: before the algorithm's correction, or after it"));
  f.push_back(List("local.class_weights", AT(run.local.class_weights),
                   "of the loss, per class; default: 1", AtLeast(0)));
  f.push_back(
      Plain("local.label_smoothing", AT(run.local.label_smoothing), "of the loss", UpTo(0, 1)));
  f.push_back(
      Plain("local.drop_last", AT(run.local.drop_last), "leave out a last batch that is not full"));
  f.push_back(Plain("local.shuffle", AT(run.local.shuffle), "false: batches in stored order"));
  f.push_back(Choice("local.trainer", AT(run.local.trainer), {"auto", "eager", "fused"},
                     "back end of the local steps"));
  f.push_back(Choice("local.lr_schedule.kind", AT(run.local.lr_schedule.kind),
                     {"constant", "step", "exponential", "cosine"},
                     "of the learning rate over rounds; lr_schedule = \"cosine\" works, too"));
  f.push_back(Plain("local.lr_schedule.gamma", AT(run.local.lr_schedule.gamma),
                    "step, exponential: the factor", Above(0)));
  f.push_back(Plain("local.lr_schedule.every", AT(run.local.lr_schedule.every),
                    "step: rounds between factors", AtLeast(1)));
  f.push_back(Plain("local.lr_schedule.rounds", AT(run.local.lr_schedule.rounds),
                    "cosine: rounds down to the floor; 0: run.rounds", AtLeast(0)));
  f.push_back(Plain("local.lr_schedule.floor", AT(run.local.lr_schedule.floor),
                    "cosine: the last factor", Between(0, 1)));
  f.push_back(Plain("local.lr_schedule.warmup_rounds", AT(run.local.lr_schedule.warmup_rounds),
                    "rounds of linear warm-up", AtLeast(0)));
}

void AddEvaluation(Fields& f) {
  f.push_back(Plain("evaluation.every", AT(run.evaluation.every), "rounds; 0: only after the last",
                    AtLeast(0)));
  f.push_back(Plain("evaluation.chunk", AT(run.evaluation.chunk),
                    "rows a task; part of the result's bits", AtLeast(1)));
  f.push_back(Plain("evaluation.central", AT(run.evaluation.central), "the central test set"));
  f.push_back(
      Plain("evaluation.clients", AT(run.evaluation.clients), "every client's own test rows"));
  f.push_back(SplitsField());
}

void AddWorkers(Fields& f) {
  f.push_back(Plain("workers.processes", AT(workers.processes), "worker processes", AtLeast(1)));
  f.push_back(
      Plain("workers.owners", AT(workers.owners),
            "so many of the first clients have a process each, and a folder with only their "
            "own rows: a rehearsal of a deployment",
            Between(0, 10000)));
  f.push_back(Plain("workers.slots", AT(workers.slots),
                    "clients at a time in each; 0: the cores, shared out", Between(0, 4096)));
  f.push_back(List("workers.slowdown", AT(workers.slowdown),
                   "emulation: slot i of the run takes so many times as long", AtLeast(1)));

  f.push_back(Choice("emulation.environment", AT(emulation.environment), {"none", "ratio", "cos"},
                     "uneven hardware as FedML Parrot emulates it: by slot, or by slot and round"));
  f.push_back(Plain("emulation.ratio", AT(emulation.ratio), "how uneven", AtLeast(0)));
  f.push_back(Plain("emulation.pause_probability", AT(emulation.pause_probability),
                    "of a client's turn to be longer by emulation.pause_seconds", Between(0, 1)));
  f.push_back(Plain("emulation.pause_seconds", AT(emulation.pause_seconds), "seconds", AtLeast(0)));
  f.push_back(Plain("emulation.seed", AT(emulation.seed), "of the pauses"));
}

void AddServer(Fields& f) {
  std::vector<std::string> policies;
  for (const auto& [name, what] : scheduler::SchedulingPolicies()) policies.push_back(name);
  f.push_back(Choice("scheduler.policy", AT(scheduler.policy), std::move(policies),
                     "which client trains where; moves time and never a result"));
  f.push_back(Plain("server.listen", AT(server.listen),
                    "host:port or unix:PATH; default: a private Unix socket"));
  f.push_back(Choice("server.durability", AT(server.durability), {"checkpoint", "commit"},
                     "what a crash of the server leaves: the newest checkpoint, or also every "
                     "commit accepted since; `macaw simulate` then starts it again"));
  f.push_back(Plain("server.lease_timeout", AT(server.lease_timeout),
                    "seconds of silence after which work goes to others", Above(0)));
  f.push_back(Plain("server.workers", AT(server.workers),
                    "rounds begin with so many; 0: workers.processes and workers.owners",
                    AtLeast(0)));
}

void AddState(Fields& f) {
  f.push_back(Choice("state.store", AT(state.store), {"disk", "memory", "redis"},
                     "where client states are kept; memory: one worker process, not resumable"));
  f.push_back(Path("state.path", AT(state.path),
                   "disk: a folder of this run's own; default: state/ in the run's folder"));
  Field url = Plain("state.url", AT(state.url),
                    "redis: unix:/path, redis://:password@host:port/db, or spawn: one of the "
                    "run's own; the password is not kept: MACAW_REDIS_PASSWORD");
  url.get = [](const Config& c) -> std::optional<Value> {
    if (c.state.url.empty()) return std::nullopt;
    return Write(state::WithoutPassword(c.state.url));
  };
  f.push_back(std::move(url));
  f.push_back(
      Plain("state.sync", AT(state.sync),
            "disk, spawn: states outlast a crash of the machine, too, not only of processes"));
  f.push_back(Plain("state.keep", AT(state.keep),
                    "false: dropped when the run is over, which then cannot go on"));
  f.push_back(
      Plain("state.memory_mb", AT(state.memory_mb), "memory: the most it may hold", AtLeast(1)));
  f.push_back(Plain("state.cache_mb", AT(state.cache_mb),
                    "disk, redis: memory in front of it, in each worker process", AtLeast(0)));
}

}  // namespace

Field DataSourceField(const std::map<std::string, sdk::DataSource>& of_plugins) {
  std::vector<std::string> names = Names(data::DataSources());
  for (const auto& [name, source] : of_plugins) names.push_back(name);
  return Choice("data.source", AT(data.source), std::move(names), "the form of the examples");
}

std::vector<Field> AllFields() {
  Fields fields;
  // Before all tables, where TOML wants keys without a table.
  Field plugins =
      List("plugins", AT(plugins), "shared libraries that add algorithms, models, data");
  plugins.is_path = true;
  plugins.expected = "a list of paths";
  fields.push_back(std::move(plugins));
  AddRun(fields);
  AddData(fields);
  AddPartition(fields);
  AddModel(fields);
  AddRound(fields);
  AddLocal(fields);
  AddEvaluation(fields);
  AddWorkers(fields);
  AddServer(fields);
  AddState(fields);
  return fields;
}

std::vector<Rivals> AllRivals() {
  return {{"cohort.size", "cohort.fraction"},
          {"local.epochs", "local.steps"},
          {"model.name", "model.layers"},
          {"model.name", "model.torchscript"},
          {"model.layers", "model.torchscript"}};
}

}  // namespace macaw::cli
