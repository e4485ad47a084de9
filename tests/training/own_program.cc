// A training program as an owner would write one without our Python module. It depends on nothing
// of Macaw, and does what the number of the client says:
//   own_program STARTS MODE [ROWS]
// STARTS: a file that gets a byte a start. MODE: "plain", "corrects", "in place" (trains where the
// end lies), "dies" (whenever it is to train), "given" (writes the rows that it is given, and gives
// them back as outputs) or "broken" (it never starts). ROWS: examples for softmax regression.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace {

using Json = nlohmann::json;

struct Example {
  std::vector<double> x;
  size_t label = 0;
};

class OwnProgram {
 public:
  OwnProgram(const std::string& mode, const std::string& rows, int channel)
      : mode_(mode), channel_(channel) {
    std::ifstream file(rows);
    size_t width = 0;
    file >> width;
    for (Example example; file >> example.label; examples_.push_back(example)) {
      example.x.resize(width);
      for (double& x : example.x) file >> x;
    }
  }

  void Serve() {
    const Json hello = Json::parse(ReadLine());
    layout_ = hello["layout"];
    memory_ = hello["memory"];
    outputs_ = hello["outputs"];
    bytes_ = static_cast<std::byte*>(::mmap(nullptr, memory_["bytes"], PROT_READ | PROT_WRITE,
                                            MAP_SHARED, std::atoi(::getenv("MACAW_MEMORY")), 0));
    const auto number = [](const char* name) {
      const char* const value = ::getenv(name);
      return std::string(value == nullptr ? "none" : value);
    };
    std::ofstream("slots", std::ios::app)
        << number("MACAW_SLOT") << " of " << number("MACAW_SLOTS") << "\n";
    Say({{"ready", 1},
         {"name", "own program " + mode_},
         {"corrections", mode_ == "corrects"},
         {"evaluates", mode_ != "plain" && mode_ != "given"},
         {"outputs", mode_ == "given"},
         {"in_place", mode_ == "in place"}});
    for (std::string line; !(line = ReadLine()).empty();) {
      const Json question = Json::parse(line);
      if (question.contains("train")) Train(question["id"], question["train"]);
      if (question.contains("evaluate")) Evaluate(question["id"], question["evaluate"]);
      if (question.contains("outputs")) Outputs(question["id"], question["outputs"]["at"]);
    }
  }

 private:
  std::string ReadLine() const {
    std::string line;
    for (char c = 0; ::read(channel_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }
  void Write(const std::string& text) const {
    if (::write(channel_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      ::_exit(9);
  }
  void Say(const Json& json) const { Write(json.dump() + "\n"); }

  float* At(const char* place, size_t tensor = 0) const {
    const size_t begin = memory_[place].get<size_t>() + layout_[tensor]["offset"].get<size_t>();
    return reinterpret_cast<float*>(bytes_ + begin);
  }
  size_t floats() const {
    return (memory_["end"].get<size_t>() - memory_["start"].get<size_t>()) / sizeof(float);
  }

  void Train(uint64_t id, const Json& train) {
    const Json good = {{"id", id}, {"rows", 20}, {"steps", 4}, {"sums", {{"loss", 10.0}}}};
    if (mode_ == "dies") ::exit(7);
    if (mode_ == "given") return TrainGiven(id, train);
    if (!examples_.empty()) return Say(SoftmaxRegression(id, train));
    if (mode_ == "corrects") return Say(Correct(good, train));
    // Everything that it can reach, the gaps between tensors, too.
    const char* const weights = train["in_place"] == true ? "end" : "start";
    for (size_t i = 0; i < floats(); ++i) At("end")[i] = At(weights)[i] + 1;
    switch (train["client"].get<int>()) {
      case 1:
        std::cerr << "opening the rows" << std::endl << "the disk is on fire" << std::endl;
        ::exit(3);
      case 2:
        ::kill(::getpid(), SIGKILL);
        return;
      case 3:
        ::pause();
        return;
      case 4:
        return Write("loss 0.3\n");
      case 5:
        return Say({{"id", id},
                    {"error",
                     {{"kind", "ValueError"},
                      {"message", "no rows"},
                      {"where", "train.py:12"},
                      {"trace", {"train.py:40 in train", "train.py:12 in open"}}}}});
      case 12:
        return Say({{"id", id},
                    {"error",
                     {{"kind", "ValueError"},
                      {"message", std::string(100'000, 'm')},
                      {"trace", {std::string(100'000, 't'), "the last line"}}}}});
      case 6:
        At("end")[0] = std::numeric_limits<float>::quiet_NaN();
        return Say(good);
      case 7:
        return Say({{"id", id + 1}, {"rows", 20}, {"steps", 4}, {"sums", {{"loss", 1}}}});
      case 8:
        return Say({{"id", id}, {"rows", 20}, {"steps", 4}, {"sums", {{"correct", 1}}}});
      case 9:
        return Say(
            {{"id", id}, {"rows", 20}, {"steps", 4}, {"sums", {{"loss", 1}, {"correct", 21}}}});
      case 10:
        return Say({{"id", id}, {"rows", 20}, {"steps", 4}, {"sums", {{"loss", nullptr}}}});
      case 11:
        std::ofstream("train.json") << train.dump();
        return Say(good);
      case 14:
        return Say(WithRates(good, 0.3, 5));
      case 15:
        return Say(WithRates(good, nullptr, nullptr));
      case 16:
        return Say(WithRates(good, -0.3, 5));
      default:
        return Say(good);
    }
  }

  std::byte* Given(const Json& at) {
    void* const rows = ::mmap(nullptr, at["bytes"], PROT_READ | PROT_WRITE, MAP_SHARED,
                              std::atoi(::getenv("MACAW_ROWS")), 0);
    return static_cast<std::byte*>(rows);
  }

  static Json WithRates(Json answer, Json rate_sum, Json a_norm1) {
    answer["rate_sum"] = std::move(rate_sum);
    answer["a_norm1"] = std::move(a_norm1);
    return answer;
  }

  // Client 13 ends the run; others leave the rating of their rows to the worker.
  void TrainGiven(uint64_t id, const Json& train) {
    const Json& at = train["at"];
    std::byte* const rows = Given(at);
    const size_t count = at["rows"], width = layout_[0]["shape"][1];
    const auto* const x = reinterpret_cast<const float*>(rows + at["features"].get<size_t>());
    const auto* const y = reinterpret_cast<const int64_t*>(rows + at["labels"].get<size_t>());
    std::ofstream file("given");
    file.precision(9);
    for (size_t i = 0; i < count; ++i) {
      file << y[i];
      for (size_t k = 0; k < width; ++k) file << " " << x[i * width + k];
      file << "\n";
    }
    std::copy(At("start"), At("start") + floats(), At("end"));
    if (train["client"] == 13)
      return Say(
          {{"id", id}, {"error", {{"kind", "KeyError"}, {"message", "x"}, {"fatal", true}}}});
    Say({{"id", id}, {"rows", count}, {"steps", 1}});
  }

  // The right class of each row, but of every fourth.
  void Outputs(uint64_t id, const Json& at) {
    std::byte* const rows = Given(at);
    const auto* const y = reinterpret_cast<const int64_t*>(rows + at["labels"].get<size_t>());
    auto* const outputs = reinterpret_cast<float*>(rows + at["outputs"].get<size_t>());
    for (size_t i = 0; i < at["rows"]; ++i) {
      const size_t told = i % 4 == 3 ? (y[i] + 1) % outputs_ : y[i];
      for (size_t k = 0; k < outputs_; ++k) outputs[i * outputs_ + k] = k == told ? 1.0F : 0.0F;
    }
    Say({{"id", id}});
  }

  // start + correction + mu · anchor: whatever arrived can be told from it.
  Json Correct(const Json& good, const Json& train) const {
    const double mu = train["mu"];
    for (size_t t = 0; t < layout_.size(); ++t) {
      At("end", t)[0] = At("start", t)[0];
      if (train["correction"]) At("end", t)[0] += At("correction", t)[0];
      if (train["anchor"]) At("end", t)[0] += static_cast<float>(mu) * At("anchor", t)[0];
    }
    return good;
  }

  // Full-batch gradient descent on weight[outputs][width] and bias[outputs].
  Json SoftmaxRegression(uint64_t id, const Json& train) const {
    const size_t width = examples_[0].x.size();
    std::vector<double> w(At("start", 0), At("start", 0) + outputs_ * width);
    std::vector<double> b(At("start", 1), At("start", 1) + outputs_);
    const int steps = train["local"]["steps"];
    const double lr = train["local"]["lr"], n = static_cast<double>(examples_.size());
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<double> dw(w.size()), db(b.size());
      for (const Example& example : examples_) {
        std::vector<double> p(b);
        for (size_t k = 0; k < outputs_; ++k) {
          for (size_t j = 0; j < width; ++j) p[k] += w[k * width + j] * example.x[j];
        }
        double sum = 0;
        for (double& q : p) sum += q = std::exp(q);
        loss -= std::log(p[example.label] / sum);
        for (size_t k = 0; k < outputs_; ++k) {
          const double d = (p[k] / sum - (k == example.label ? 1 : 0)) / n;
          db[k] += d;
          for (size_t j = 0; j < width; ++j) dw[k * width + j] += d * example.x[j];
        }
      }
      for (size_t i = 0; i < w.size(); ++i) w[i] -= lr * dw[i];
      for (size_t i = 0; i < b.size(); ++i) b[i] -= lr * db[i];
    }
    std::copy(w.begin(), w.end(), At("end", 0));
    std::copy(b.begin(), b.end(), At("end", 1));
    const size_t rows = steps * examples_.size();
    return {{"id", id}, {"rows", rows}, {"steps", steps}, {"sums", {{"loss", loss}}}};
  }

  void Evaluate(uint64_t id, const Json& evaluate) {
    const double rows = evaluate["end"].get<double>() - evaluate["begin"].get<double>();
    if (evaluate["client"] == 5) return Say({{"id", id}, {"error", {{"message", "no test rows"}}}});
    if (evaluate["client"] == 6)
      return Say({{"id", id}, {"sums", {{"examples", rows + 1}, {"loss", 1}, {"correct", 1}}}});
    if (evaluate["client"] == 1 && ::access("evaluated", F_OK) != 0) {
      std::ofstream("evaluated") << "";
      ::exit(4);  // the first time only
    }
    Say({{"id", id},
         {"sums", {{"examples", rows}, {"loss", At("start")[0] * rows}, {"correct", 1}}}});
  }

  const std::string mode_;
  const int channel_;
  std::vector<Example> examples_;
  Json layout_, memory_;
  size_t outputs_ = 0;
  std::byte* bytes_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::ofstream(argv[1], std::ios::app) << "s";
  const std::string mode = argv[2];
  if (mode == "broken") {
    std::cerr << "ModuleNotFoundError: No module named 'jax'" << std::endl;
    return 1;
  }
  OwnProgram(mode, argc > 3 ? argv[3] : "", std::atoi(::getenv("MACAW_CHANNEL"))).Serve();
}
