#include "plan/evaluation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

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

bool SetSplits(EvaluationConfig& evaluation, const Value& value) {
  const Array* words = value.As<Array>();
  return words != nullptr && !words->empty() && SetWords(kSplits, evaluation, value);
}

settings::Section<FineTune> FineTuneSection() {
  settings::Section<FineTune> f;
  f.Add("steps", &FineTune::steps,
        "so many local steps on a client's training rows, then its test rows again; 0: none",
        AtLeast(0));
  f.Add("lr", &FineTune::lr, "their learning rate; 0: the round's", AtLeast(0));
  return f;
}

}  // namespace

settings::Section<EvaluationConfig> EvaluationSection() {
  using E = EvaluationConfig;
  settings::Section<E> f;
  f.Add("every", &E::every, "rounds; 0: only after the last", AtLeast(0));
  f.Add("chunk", &E::chunk, "rows a task; part of the result's bits", AtLeast(1));
  f.Add("central", &E::central, "the central test set");
  f.Add("clients", &E::clients, "every client's own test rows");
  f.Add("sample", &E::sample,
        "so many clients, drawn anew each time, instead of every one (test and validation rows)",
        AtLeast(0));
  f.AddSection("fine_tune", &E::fine_tune, FineTuneSection());
  settings::Field<E>& splits =
      f.Add("splits", &E::test,
            "which rows are evaluated; validation, train: those of all clients; train: the "
            "objective, too")
          .Expecting("a list of \"test\", \"validation\" and \"train\"");
  for (const Word& split : kSplits) splits.choices.push_back(split.word);
  splits.set = SetSplits;
  splits.get = [](const E& e) -> std::optional<Value> { return Value{WordsOf(kSplits, e)}; };
  splits.reset = [](E& e) {
    E fresh;
    for (const Word& split : kSplits) *split.flag(e) = *split.flag(fresh);
  };
  settings::Field<E>& metrics =
      f.Add("metrics", &E::heldout,
            "of classes, beside loss and accuracy: balanced_accuracy, f1, auc; confusion: the "
            "matrix and each class, in confusion.json")
          .Expecting("a list of \"balanced_accuracy\", \"f1\", \"auc\" and \"confusion\"");
  for (const Word& metric : kMetrics) metrics.choices.push_back(metric.word);
  metrics.set = [](E& e, const Value& value) { return SetWords(kMetrics, e, value); };
  metrics.get = [](const E& e) -> std::optional<Value> {
    if (!e.metrics.any()) return std::nullopt;
    return Value{WordsOf(kMetrics, e)};
  };
  metrics.reset = [](E& e) { e.metrics = {}; };
  f.Add("heldout", &E::heldout,
        "clients without training rows (data.heldout_clients) apart, as those who join later: "
        "heldout_test_*");
  return f;
}

}  // namespace macaw
