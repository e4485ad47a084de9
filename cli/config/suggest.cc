#include "cli/config/suggest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/spelling.h"

namespace macaw::cli {
namespace {

struct Synonym {
  absl::string_view theirs;  // the last part of their key, in lower case, with '-' as '_'
  absl::string_view ours;
};

// Names used by FedML, Flower, FedScale, LEAF, NIID-bench, FedLab and pfl-research, and other
// common ones.
constexpr Synonym kSynonyms[] = {
    {"comm_round", "run.rounds"},
    {"comm_rounds", "run.rounds"},
    {"num_rounds", "run.rounds"},
    {"n_rounds", "run.rounds"},
    {"global_rounds", "run.rounds"},
    {"total_rounds", "run.rounds"},
    {"communication_rounds", "run.rounds"},
    {"central_num_iterations", "run.rounds"},
    {"num_server_rounds", "run.rounds"},
    {"random_seed", "run.seed"},
    {"init_seed", "run.seed"},
    {"experiment_name", "run.name"},
    {"run_name", "run.name"},
    {"output_dir", "run.out"},
    {"log_dir", "run.out"},
    {"save_every", "run.checkpoint_every"},
    {"checkpoint_interval", "run.checkpoint_every"},
    {"checkpoint_frequency", "run.checkpoint_every"},
    {"enable_wandb", "run.track"},
    {"precision", "run.dtype"},
    {"client_num_per_round", "cohort.size"},
    {"clients_per_round", "cohort.size"},
    {"num_clients_per_round", "cohort.size"},
    {"cohort_size", "cohort.size"},
    {"train_cohort_size", "cohort.size"},
    {"num_participants", "cohort.size"},
    {"min_fit_clients", "cohort.size"},
    {"fraction_fit", "cohort.fraction"},
    {"fraction_train", "cohort.fraction"},
    {"frac", "cohort.fraction"},
    {"sample_fraction", "cohort.fraction"},
    {"sample_ratio", "cohort.fraction"},
    {"sample_rate", "cohort.fraction"},
    {"participation_rate", "cohort.fraction"},
    {"join_ratio", "cohort.fraction"},
    {"client_fraction", "cohort.fraction"},
    {"weighting", "cohort.weight"},
    {"aggregation_weights", "cohort.weight"},
    {"local_epochs", "local.epochs"},
    {"local_ep", "local.epochs"},
    {"num_epochs", "local.epochs"},
    {"epoch", "local.epochs"},
    {"local_num_epochs", "local.epochs"},
    {"local_steps", "local.steps"},
    {"num_steps", "local.steps"},
    {"min_h", "local.steps"},
    {"init_h", "local.steps"},
    {"h_base", "local.steps"},
    {"quadratic_synchronization", "local.qsr"},
    {"quadratic_synchronisation", "local.qsr"},
    {"learning_rate", "local.lr"},
    {"client_lr", "local.lr"},
    {"client_learning_rate", "local.lr"},
    {"local_learning_rate", "local.lr"},
    {"local_lr", "local.lr"},
    {"eta", "local.lr"},
    {"batch", "local.batch_size"},
    {"bs", "local.batch_size"},
    {"local_bs", "local.batch_size"},
    {"batchsize", "local.batch_size"},
    {"train_batch_size", "local.batch_size"},
    {"local_batch_size", "local.batch_size"},
    {"wd", "local.weight_decay"},
    {"l2", "local.weight_decay"},
    {"gradient_checkpointing", "local.checkpoint"},
    {"activation_checkpointing", "local.checkpoint"},
    {"client_optimizer", "local.optimizer"},
    {"local_optimizer", "local.optimizer"},
    {"scheduler", "local.lr_schedule.kind"},
    {"lr_decay", "local.lr_schedule.gamma"},
    {"attack_type", "attack.kind"},
    {"attack_mode", "attack.kind"},
    {"byzantine_client_num", "attack.fraction"},
    {"noise_multiplier", "privacy.noise"},
    {"noise_scale", "privacy.noise"},
    {"epsilon", "privacy.noise"},
    {"clipping_norm", "privacy.clip"},
    {"clipping_bound", "privacy.clip"},
    {"noise_cohort_size", "privacy.noise_cohort"},
    {"population", "privacy.population"},
    {"target_clipped_quantile", "privacy.clip_quantile"},
    {"compressor", "update.codec"},
    {"compression", "update.codec"},
    {"compression_method", "update.codec"},
    {"compression_ratio", "update.codec"},
    {"compress_ratio", "update.codec"},
    {"sparsity", "update.codec"},
    {"sparsification", "update.codec"},
    {"topk", "update.codec"},
    {"top_k", "update.codec"},
    {"quantization", "update.codec"},
    {"quantisation", "update.codec"},
    {"quantize_level", "update.codec"},
    {"num_bits", "update.codec"},
    {"codec", "update.codec"},
    {"downlink", "broadcast.codec"},
    {"download_codec", "broadcast.codec"},
    {"error_feedback", "update.feedback"},
    {"feedback", "update.feedback"},
    {"residual_beta", "update.residual_decay"},
    {"memory_decay", "update.residual_decay"},
    {"error_decay", "update.residual_decay"},
    {"adaptive_rank", "update.adapt"},
    {"lgreco", "update.adapt"},
    {"adjust_freq", "update.adapt"},
    {"max_grad_norm", "local.clip_norm"},
    {"local_max_grad_norm", "local.clip_norm"},
    {"grad_clip", "local.clip_norm"},
    {"clip", "local.clip_norm"},
    {"smoothing", "local.label_smoothing"},
    {"drop_remainder", "local.drop_last"},
    {"proximal_mu", "algorithm.fedprox.mu"},
    {"client_num_in_total", "partition.clients"},
    {"num_clients", "partition.clients"},
    {"n_clients", "partition.clients"},
    {"num_users", "partition.clients"},
    {"n_parties", "partition.clients"},
    {"total_clients", "partition.clients"},
    {"num_supernodes", "partition.clients"},
    {"num_partitions", "partition.clients"},
    {"alpha", "partition.concentration"},
    {"partition_alpha", "partition.concentration"},
    {"dirichlet_alpha", "partition.concentration"},
    {"dir_alpha", "partition.concentration"},
    {"dirichlet", "partition.concentration"},
    {"partition_method", "partition.scheme"},
    {"partitioner", "partition.scheme"},
    {"partition", "partition.scheme"},
    {"split", "partition.scheme"},
    {"method", "partition.scheme"},
    {"shards_per_client", "partition.classes_per_client"},
    {"min_partition_size", "partition.min_size"},
    {"min_samples", "partition.min_size"},
    {"dataset", "data.source"},
    {"dataset_name", "data.source"},
    {"data_dir", "data.path"},
    {"data_cache_dir", "data.path"},
    {"datadir", "data.path"},
    {"data_path", "data.path"},
    {"target_column", "data.label_column"},
    {"user_column", "data.client_column"},
    {"partition_by", "data.client_column"},
    {"ignore_columns", "data.drop_columns"},
    {"normalize", "data.normalise"},
    {"normalization", "data.normalise"},
    {"augmentation", "data.augment"},
    {"noise", "data.client_noise"},
    {"test_size", "data.test_fraction"},
    {"val_size", "data.val_fraction"},
    {"client_test_size", "data.client_test_fraction"},
    {"model_name", "model.name"},
    {"architecture", "model.name"},
    {"arch", "model.name"},
    {"net", "model.name"},
    {"init_weights", "model.init"},
    {"pretrained", "model.init"},
    {"num_classes", "data.classes"},
    {"federated_optimizer", "algorithm.name"},
    {"fl_algorithm", "algorithm.name"},
    {"strategy", "algorithm.name"},
    {"aggregator", "algorithm.name"},
    {"frequency_of_the_test", "evaluation.every"},
    {"test_every", "evaluation.every"},
    {"eval_every", "evaluation.every"},
    {"evaluation_frequency", "evaluation.every"},
    {"eval_interval", "evaluation.every"},
    {"eval_frequency", "evaluation.every"},
    {"test_batch_size", "evaluation.chunk"},
    {"eval_batch_size", "evaluation.chunk"},
    {"num_workers", "workers.processes"},
    {"worker_num", "workers.processes"},
    {"n_workers", "workers.processes"},
    {"num_threads", "workers.slots"},
    {"threads", "workers.slots"},
    {"early_stopping", "run.stop"},
    {"target_accuracy", "run.stop.at_least"},
    {"device_heterogeneity", "devices.family"},
    {"buffer_size", "cohort.size"},
    {"async", "round.mode"},
    {"asynchronous", "round.mode"},
    {"max_concurrency", "round.concurrency"},
    {"staleness", "round.max_staleness"},
    {"staleness_discount", "round.discount"},
    {"system_heterogeneity", "devices.family"},
    {"device_capacity", "devices.file"},
    {"device_conf_file", "devices.file"},
    {"device_profiles", "devices.file"},
    {"device_avail_file", "devices.presence"},
    {"behavior_trace", "devices.presence"},
    {"user_trace", "devices.presence"},
    {"availability_trace", "devices.presence"},
    {"port", "server.listen"},
    {"address", "server.listen"},
    {"server_address", "server.listen"},
    {"min_available_clients", "server.workers"},
    {"timeout", "server.lease_timeout"},
};

absl::string_view LastPart(absl::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == absl::string_view::npos ? key : key.substr(dot + 1);
}

absl::string_view TablePart(absl::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == absl::string_view::npos ? absl::string_view() : key.substr(0, dot);
}

}  // namespace

std::string NearestKey(absl::string_view key, const std::vector<std::string>& known) {
  const std::string wanted = NormalSpelling(key);
  const absl::string_view name = LastPart(wanted);
  const absl::string_view table = TablePart(wanted);

  // A misspelling within the same table is tried before a key of that name in another table.
  const std::string* nearest = nullptr;
  size_t nearest_distance = 0;
  for (const std::string& candidate : known) {
    if (TablePart(candidate) != table) continue;
    const size_t distance = EditDistance(name, LastPart(candidate));
    if (distance <= 1 && (nearest == nullptr || distance < nearest_distance)) {
      nearest = &candidate;
      nearest_distance = distance;
    }
  }
  if (nearest != nullptr && name.size() > 2) return *nearest;

  // So is a misspelled table before another system's name.
  for (const std::string& candidate : known) {
    if (!table.empty() && LastPart(candidate) == name &&
        EditDistance(TablePart(candidate), table) <= 1)
      return candidate;
  }
  for (const Synonym& synonym : kSynonyms) {
    if (synonym.theirs == name) return std::string(synonym.ours);
  }
  for (const std::string& candidate : known) {
    if (LastPart(candidate) == name) return candidate;
  }
  const std::string spelled = NearestWord(wanted, known);
  if (!spelled.empty()) return spelled;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, LastPart(candidate));
    if (name.size() > 3 && IsNear(distance, name) &&
        (nearest == nullptr || distance < nearest_distance)) {
      nearest = &candidate;
      nearest_distance = distance;
    }
  }
  return nearest == nullptr ? "" : *nearest;
}

}  // namespace macaw::cli
