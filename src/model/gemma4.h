/* Gemma 4 MoE text models (26B-A4B and any size of the same architecture).
 * Equations: Hugging Face transformers, models/gemma4; mlx-lm, models/gemma4_text. */
#ifndef MODEL_GEMMA4_H
#define MODEL_GEMMA4_H

#include "model/family.h"

extern const struct family GEMMA4;
extern const struct full_size GEMMA4_FULL_SIZE; /* 26B-A4B */

#endif
