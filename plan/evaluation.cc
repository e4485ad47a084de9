#include "plan/evaluation.h"

namespace macaw {

using settings::Array;
using settings::AtLeast;
using settings::Value;

namespace {

// Words, each at most once and at least one.
bool SetSplits(EvaluationConfig& evaluation, const Value& value) {
  const Array* words = value.As<Array>();
  if (words == nullptr || words->empty()) return false;
  bool test = false, train = false;
  for (const Value& item : *words) {
    const std::string* word = item.As<std::string>();
    if (word == nullptr || (*word != "test" && *word != "train")) return false;
    bool& named = *word == "test" ? test : train;
    if (named) return false;
    named = true;
  }
  evaluation.test = test;
  evaluation.train = train;
  return true;
}

std::optional<Value> GetSplits(const EvaluationConfig& evaluation) {
  Array words;
  for (const auto& [word, named] :
       {std::pair<std::string, bool>("test", evaluation.test), {"train", evaluation.train}}) {
    if (named) words.push_back(settings::Write(word));
  }
  return Value{std::move(words)};
}

}  // namespace

settings::Section<EvaluationConfig> EvaluationSection() {
  using E = EvaluationConfig;
  settings::Section<E> f;
  f.Add("every", &E::every, "rounds; 0: only after the last", AtLeast(0));
  f.Add("chunk", &E::chunk, "rows a task; part of the result's bits", AtLeast(1));
  f.Add("central", &E::central, "the central test set");
  f.Add("clients", &E::clients, "every client's own test rows");
  settings::Field<E>& splits =
      f.Add("splits", &E::test,
            "which rows are evaluated; train: those of all clients, and the objective")
          .Expecting("a list of \"test\" and \"train\"");
  splits.choices = {"test", "train"};
  splits.set = SetSplits;
  splits.get = GetSplits;
  splits.reset = [](E& evaluation) {
    evaluation.test = E().test;
    evaluation.train = E().train;
  };
  return f;
}

}  // namespace macaw
