#include "plan/evaluation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macaw {

using settings::Array;
using settings::AtLeast;
using settings::Value;

namespace {

// A word of a list and the flag that it sets.
struct Word {
  const char* word;
  bool* (*flag)(EvaluationConfig&);
};

constexpr Word kSplits[] = {
    {"test", [](EvaluationConfig& e) { return &e.test; }},
    {"validation", [](EvaluationConfig& e) { return &e.validation; }},
    {"train", [](EvaluationConfig& e) { return &e.train; }},
};

constexpr Word kMetrics[] = {
    {"balanced_accuracy", [](EvaluationConfig& e) { return &e.metrics.balanced_accuracy; }},
    {"f1", [](EvaluationConfig& e) { return &e.metrics.f1; }},
    {"auc", [](EvaluationConfig& e) { return &e.metrics.auc; }},
    {"confusion", [](EvaluationConfig& e) { return &e.metrics.confusion; }},
    {"top5", [](EvaluationConfig& e) { return &e.metrics.top5; }},
    {"ece", [](EvaluationConfig& e) { return &e.metrics.ece; }},
    {"r2", [](EvaluationConfig& e) { return &e.metrics.r2; }},
    {"perplexity", [](EvaluationConfig& e) { return &e.metrics.perplexity; }},
};

// Sets the flags that the list names, each at most once, and clears the others.
bool SetWords(std::span<const Word> words, EvaluationConfig& evaluation, const Value& value) {
  const Array* given = value.As<Array>();
  if (given == nullptr) return false;
  EvaluationConfig set = evaluation;
  for (const Word& word : words) *word.flag(set) = false;
  for (const Value& item : *given) {
    const std::string* text = item.As<std::string>();
    if (text == nullptr) return false;
    const auto word = std::ranges::find_if(words, [&](const Word& w) { return w.word == *text; });
    if (word == words.end() || *word->flag(set)) return false;
    *word->flag(set) = true;
  }
  evaluation = set;
  return true;
}

Array WordsOf(std::span<const Word> words, EvaluationConfig evaluation) {
  Array set;
  for (const Word& word : words) {
    if (*word.flag(evaluation)) set.push_back(settings::Write(std::string(word.word)));
  }
  return set;
}

// Adds a key whose value is a list of words, each of which sets a flag.
settings::Field<EvaluationConfig>& AddFlags(settings::Section<EvaluationConfig>& section,
                                            const char* key, std::span<const Word> words,
                                            std::string help) {
  settings::Field<EvaluationConfig>& field = section.fields().emplace_back();
  field.key = key;
  field.help = std::move(help);
  for (const Word& word : words) field.choices.push_back(word.word);
  field.expected =
      absl::StrCat("a list of ", settings::QuotedChoices(field.choices), ", each once");
  field.set = [words](EvaluationConfig& e, const Value& value) {
    return SetWords(words, e, value);
  };
  field.get = [words](const EvaluationConfig& e) -> std::optional<Value> {
    Array set = WordsOf(words, e);
    if (set.empty()) return std::nullopt;
    return Value{std::move(set)};
  };
  field.reset = [words](EvaluationConfig& e) {
    EvaluationConfig fresh;
    for (const Word& word : words) *word.flag(e) = *word.flag(fresh);
  };
  return field;
}

bool EvaluatesClients(const EvaluationConfig& e) {
  return e.validation || (e.test && (e.clients || e.heldout));
}

settings::Section<FineTune> FineTuneSection() {
  settings::Section<FineTune> f;
  f.Add("steps", &FineTune::steps,
        "local steps on a client's training rows before its test rows are evaluated again; 0: none",
        AtLeast(0));
  f.Add("lr", &FineTune::lr,
        "learning rate of these steps in every round; 0: local.lr, without its schedule",
        AtLeast(0))
      .Needs([](const FineTune& tune) { return tune.steps > 0; },
             "evaluation.fine_tune.steps above 0");
  return f;
}

}  // namespace

settings::Section<EvaluationConfig> EvaluationSection() {
  using E = EvaluationConfig;
  settings::Section<E> f;
  f.Add("every", &E::every, "rounds between evaluations; 0: only after the last round", AtLeast(0));
  f.Add("chunk", &E::chunk, "rows of an evaluation task; part of the result's bits", AtLeast(1));
  // A key that asks for nothing may always do so.
  const auto test_rows = [](bool E::*asks) {
    return [asks](const E& e) { return e.test || !(e.*asks); };
  };
  const char* const needs_test = "\"test\" in evaluation.splits";
  f.Add("central", &E::central, "whether the central test set is evaluated")
      .Needs(test_rows(&E::central), needs_test);
  f.Add("clients", &E::clients, "whether every client's own test rows are evaluated")
      .Needs(test_rows(&E::clients), needs_test);
  f.Add(
       "sample", &E::sample,
       "how many clients are evaluated each time, drawn again among those with such rows; default: "
       "all (test and validation rows; as many of the clients without training rows)",
       AtLeast(0))
      .Needs(EvaluatesClients,
             "clients to evaluate: evaluation.clients or heldout, or evaluation.splits with "
             "\"validation\"");
  const size_t before = f.fields().size();
  f.AddSection("fine_tune", &E::fine_tune, FineTuneSection());
  for (settings::Field<E>& field : std::span(f.fields()).subspan(before)) {
    field.Needs([](const E& e) { return e.test && (e.clients || e.heldout); },
                "clients to tune: set evaluation.clients = true, or evaluation.heldout");
  }
  settings::Field<E>& splits = AddFlags(
      f, "splits", kSplits,
      "which rows are evaluated. validation, train: the rows of all clients; train also gives "
      "the objective");
  splits.set = [set = splits.set](E& e, const Value& value) {
    const Array* const words = value.As<Array>();
    return words != nullptr && !words->empty() && set(e, value);
  };
  AddFlags(
      f, "metrics", kMetrics,
      "metrics beside loss and accuracy. Of classes: balanced_accuracy, f1, auc, top5, ece "
      "(calibration); confusion writes the matrix and each class to confusion.json. Of regression: "
      "r2; of texts: perplexity")
      .Needs([](const E& e) { return e.train || (e.test && e.central) || EvaluatesClients(e); },
             "something to evaluate: evaluation.central, clients or heldout, or "
             "evaluation.splits with \"validation\" or \"train\"");
  f.Add(
       "groups", &E::groups,
       "groups of clients with columns of their own beside clients_test_*: NAME=PATTERN, a pattern "
       "of clients' names with * for any text and ? for any character; the first that matches "
       "counts; or @FILE, a CSV table with columns client and group. Also the worst group and its "
       "distance from the best one")
      .Needs([](const E& e) { return e.test && e.clients; }, "evaluation.clients = true");
  f.Add("updates", &E::updates,
        "whether each round reports how far clients move and how much they agree: rule_drift_mean, "
        "rule_drift_max, rule_update_norm, rule_update_agreement, rule_update_cosine");
  f.Add("heldout", &E::heldout,
        "whether clients without training rows (data.heldout_clients) are evaluated apart, as "
        "clients that join later: heldout_test_*")
      .Needs(test_rows(&E::heldout), needs_test);
  f.Add("leave_one_out", &E::leave_one_out,
        "every how many rounds the model is evaluated without each client of the round, too "
        "(contributions.jsonl); 0: never",
        AtLeast(0))
      .Needs([](const E& e) { return e.leave_one_out == 0 || (e.test && e.central); },
             "the central test set: evaluation.central = true, and \"test\" in "
             "evaluation.splits");
  settings::Field<E>& unlearn =
      f.Add("unlearn", &E::unlearn,
            "numbers of clients whose updates are taken out of all rounds, to the first order, in "
            "a model of their own each (unlearned/NUMBER.safetensors, contributions.jsonl)",
            AtLeast(0));
  unlearn.expected += ", each once";
  unlearn.set = [set = unlearn.set](E& e, const Value& value) {
    E changed = e;
    if (!set(changed, value)) return false;
    const std::set<uint64_t> once(changed.unlearn.begin(), changed.unlearn.end());
    if (once.size() < changed.unlearn.size()) return false;
    e = std::move(changed);
    return true;
  };
  return f;
}

}  // namespace macaw
