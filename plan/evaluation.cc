#include "plan/evaluation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

namespace macaw {

using settings::Array;
using settings::AtLeast;
using settings::Value;

namespace {

struct Split {
  const char* word;
  bool EvaluationConfig::*named;
};
constexpr Split kSplits[] = {{"test", &EvaluationConfig::test},
                             {"validation", &EvaluationConfig::validation},
                             {"train", &EvaluationConfig::train}};

// Words, each at most once and at least one.
bool SetSplits(EvaluationConfig& evaluation, const Value& value) {
  const Array* words = value.As<Array>();
  if (words == nullptr || words->empty()) return false;
  EvaluationConfig set;
  for (const Split& split : kSplits) set.*split.named = false;
  for (const Value& item : *words) {
    const std::string* word = item.As<std::string>();
    if (word == nullptr) return false;
    const auto* split =
        std::ranges::find_if(kSplits, [&](const Split& s) { return s.word == *word; });
    if (split == std::end(kSplits) || set.*split->named) return false;
    set.*split->named = true;
  }
  for (const Split& split : kSplits) evaluation.*split.named = set.*split.named;
  return true;
}

std::optional<Value> GetSplits(const EvaluationConfig& evaluation) {
  Array words;
  for (const Split& split : kSplits) {
    if (evaluation.*split.named) words.push_back(settings::Write(std::string(split.word)));
  }
  return Value{std::move(words)};
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
  for (const Split& split : kSplits) splits.choices.push_back(split.word);
  splits.set = SetSplits;
  splits.get = GetSplits;
  splits.reset = [](E& evaluation) {
    for (const Split& split : kSplits) evaluation.*split.named = E().*split.named;
  };
  return f;
}

}  // namespace macaw
