// A llama.cpp context that does as it is told on standard input, so that benchmarks/llama_cpp.py
// can alternate it with specla: one engine works, the other sleeps in a read.
//
//   llama_worker MODEL THREADS CONTEXT
//
// Commands, one a line, each answered by one line:
//   reset                      forget everything
//   prompt N t0 .. tN-1        tokens at once, logits of the last row; answers seconds
//   steps  N SIZE t0 .. tN-1   tokens in pieces of SIZE, logits of all rows; answers seconds each
//   logits FILE                logits of the last piece as raw float32; answers rows and columns
// A failure ends the process with a line on standard error.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void fail(const std::string & what) {
    std::fprintf(stderr, "llama_worker: %s\n", what.c_str());
    std::exit(1);
}

void only_errors(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

class Engine {
  public:
    Engine(const char * path, int threads, int context) {
        llama_model_params model_options = llama_model_default_params();
        model_options.n_gpu_layers = 0;
        model_ = llama_model_load_from_file(path, model_options);
        if (model_ == nullptr) {
            fail(std::string("can't load ") + path);
        }
        llama_context_params options = llama_context_default_params();
        options.n_ctx = context;
        options.n_threads = threads;
        options.n_threads_batch = threads;
        context_ = llama_init_from_model(model_, options);
        if (context_ == nullptr) {
            fail("can't make a context");
        }
        vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
        batch_ = llama_batch_init(context, 0, 1);
    }

    void reset() {
        llama_memory_clear(llama_get_memory(context_), true);
        position_ = 0;
    }

    // Seconds of one forward pass over some tokens, until its logits are there.
    double forward(const int * tokens, int count, bool all_rows) {
        batch_.n_tokens = count;
        for (int i = 0; i < count; i++) {
            batch_.token[i] = tokens[i];
            batch_.pos[i] = position_ + i;
            batch_.n_seq_id[i] = 1;
            batch_.seq_id[i][0] = 0;
            batch_.logits[i] = all_rows || i + 1 == count;
        }
        const auto start = std::chrono::steady_clock::now();
        if (llama_decode(context_, batch_) != 0) {
            fail("llama_decode failed");
        }
        const float * logits = llama_get_logits(context_);  // waits for the result
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        rows_ = all_rows ? count : 1;
        position_ += count;
        return logits == nullptr ? -1.0 : spent.count();
    }

    void write_logits(const std::string & path) {
        std::ofstream file(path, std::ios::binary);
        const size_t size = sizeof(float) * rows_ * vocabulary_;
        file.write(reinterpret_cast<const char *>(llama_get_logits(context_)), size);
        if (!file.flush()) {
            fail("can't write " + path);
        }
        std::printf("%d %d\n", rows_, vocabulary_);
    }

  private:
    llama_model * model_ = nullptr;
    llama_context * context_ = nullptr;
    llama_batch batch_{};
    int position_ = 0;
    int rows_ = 0;
    int vocabulary_ = 0;
};

std::vector<int> read_tokens(int count) {
    std::vector<int> tokens(count);
    for (int & token : tokens) {
        if (!(std::cin >> token)) {
            fail("a command broke off");
        }
    }
    return tokens;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 4) {
        fail("usage: llama_worker MODEL THREADS CONTEXT");
    }
    llama_log_set(only_errors, nullptr);
    llama_backend_init();
    Engine engine(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
    std::printf("ready\n");
    std::fflush(stdout);
    std::string command;
    while (std::cin >> command) {
        int count = 0, size = 0;
        if (command == "reset") {
            engine.reset();
            std::printf("done\n");
        } else if (command == "prompt" && std::cin >> count) {
            const std::vector<int> tokens = read_tokens(count);
            std::printf("%.9f\n", engine.forward(tokens.data(), count, false));
        } else if (command == "steps" && std::cin >> count >> size && size > 0) {
            const std::vector<int> tokens = read_tokens(count);
            for (int i = 0; i + size <= count; i += size) {
                std::printf("%.9f ", engine.forward(tokens.data() + i, size, true));
            }
            std::printf("\n");
        } else if (command == "logits") {
            std::string path;
            std::cin >> path;
            engine.write_logits(path);
        } else {
            fail("unknown command " + command);
        }
        std::fflush(stdout);
    }
    return 0;
}
