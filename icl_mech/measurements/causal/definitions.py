"""Formulas behind patches, function vectors, induction and attribution."""

from icl_mech.results.figures import Definition

TODD = "Todd et al. 2024, Function vectors in large language models, §2"
HENDEL = "Hendel et al. 2023, In-context learning creates task vectors, §3"
OLSSON = "Olsson et al. 2022, In-context learning and induction heads"

INDIRECT = Definition(
    "average indirect effect",
    r"\mathrm{AIE}(l,h) = \frac{1}{N} \sum_n P\!\left(y_n \mid \tilde p_n, z_{lh} \leftarrow "
    r"\bar z_{lh}\right) - P\!\left(y_n \mid \tilde p_n\right)",
    "On prompts p̃ with shuffled labels the output z of one head at the last token is replaced by its "
    "mean z̄ over prompts with true labels; the effect is the change of the probability of the right "
    "answer y.",
    TODD,
)

DIFFERENCE = Definition(
    "effect on the logit difference",
    r"\Delta_{n}(l,h) = d\!\left(\tilde p_n, z_{lh} \leftarrow \bar z_{lh}\right) - d(\tilde p_n), "
    r"\quad d = \ell_{y} - \frac{1}{C-1} \sum_{c \neq y} \ell_c",
    "The same patch, judged by the logit of the right label word minus the mean of the others: "
    "probabilities of weak models are so small that their changes say little.",
)

FAMILY = Definition(
    "clear among all heads",
    r"\frac{\bar e_h}{\operatorname{se}(e_h)} > Q_{0.975}\left(\max_{h'} t^*_{h'}\right)",
    "A head counts as clear if its mean effect over its standard error is larger than the largest such "
    "ratio t* of all heads in 97.5 % of the resamples drawn as if no head had an effect; likewise for "
    "effects below 0.",
)

FUNCTION = Definition(
    "function vector",
    r"v = \sum_{(l,h) \in H} \bar z_{lh} W_{O,lh}",
    "Sum of what the k heads H with the largest mean effect write into the residual stream, at their mean "
    "outputs. Output biases are left out; the reference adds the layer's bias once for each head.",
    TODD,
)

ADDED = Definition(
    "effect of a vector",
    r"h_{l+1}[q] \leftarrow h_{l+1}[q] + s\,v \quad\text{or}\quad h_{l+1}[q] \leftarrow v_l",
    "The vector is added to the output of block l at the last token q of a prompt without "
    "demonstrations (function vector), or replaces it (task vector).",
    f"{TODD}; {HENDEL}",
)

TASK = Definition(
    "task vector",
    r"v_l = \frac{1}{N} \sum_n h_{l+1}[n, q]",
    "Mean output of block l at the last token of prompts with demonstrations whose query is another one.",
    HENDEL,
)

INDUCTION = Definition(
    "induction score",
    r"\frac{1}{|R|} \sum_{i \in R} A_h\!\left[i, j(i) + 1\right], \quad "
    r"j(i) = \max \{ j < i : x_j = x_i \}",
    "Mean attention from each repeated token to the token after its last earlier occurrence; R are the "
    "rows whose token occurred before. The sequence is random tokens twice.",
    OLSSON,
)

LEVEL = Definition(
    "control",
    r"\frac{1}{|R|} \sum_{i \in R} \frac{1}{|E_i|} \sum_{j \in E_i} A_h[i, j]",
    "Mean attention from the same rows to one of the other tokens of the first copy, E: what a head that "
    "looks back without matching gives to a token.",
)

DETECTED = Definition(
    "detection by a pattern",
    r"\mathrm{mul} = \frac{\sum_{ij} A_{ij} P_{ij}}{\sum_{ij} A_{ij}}, \quad "
    r"\mathrm{abs} = 1 - \frac{1}{T} \sum_{ij} \left|A_{ij} - P_{ij}\right|",
    "The head detector of TransformerLens; P is 1 at every token after an earlier occurrence. `mul` divides "
    "by all rows, those without an earlier occurrence too; `abs` is a distance of whole maps.",
    "TransformerLens 4.3, detect_head",
)

ATTRIBUTION = Definition(
    "attribution",
    r"s_a = \left(a_{\text{true}} - a_{\text{false}}\right) \cdot \frac{\partial m}{\partial a}"
    r"\bigg|_{\text{false}}",
    "First-order estimate of what patching the node a (embedding, head, MLP, at one position) from the run "
    "with true into the run with false demonstrations changes; m is the logit of the right minus that of "
    "the wrong label word. With steps the gradient is the mean over the straight path between the two "
    "embeddings; the scores of the embeddings then add up to the gap of m.",
    "Nanda 2023, Attribution patching; Hanna et al. 2024, EAP-IG",
)

EDGE = Definition(
    "attribution of an edge",
    r"s_{a \to b} = \left(a_{\text{true}} - a_{\text{false}}\right) \cdot "
    r"\frac{\partial m}{\partial x_b}\bigg|_{\text{false}}",
    "The same for what node a writes into the input x of a later node b (query, key or value of a head, "
    "MLP, logits). The edges of a writer add up to its node.",
    "Syed et al. 2023, Attribution patching outperforms automated circuit discovery",
)

AGREEMENT = Definition(
    "agreement with patching",
    r"\rho_n = \operatorname{Spearman}_{l,h}\left(s_{lh},\ \Delta m_{lh}\right)",
    "Rank correlation over heads, for each prompt, of attribution and the true change of m when the "
    "head's output is patched at all positions.",
)

OVERLAP = Definition("overlap", r"|H_a \cap H_b|", "Number of heads that two sets have in common.")

ALONE = Definition(
    "change without a set's own heads",
    r"m(p_n \mid z_{H_a \setminus \bigcup_{b \neq a} H_b} \leftarrow 0) - m(p_n)",
    "The heads that only set a has are removed at the last token; m is the logit of the right minus that of "
    "the taught false label word, or whether the answer is right. Beside it stand random heads, as many in "
    "each layer and in no set; the interval of the difference is at least that of one more draw.",
    "Yin and Steinhardt 2025, Which attention heads matter for in-context learning?",
)

CUT = Definition(
    "agreement of saliency with cutting",
    r"\rho_n = \operatorname{Spearman}_l\left(\sum_{(i,j) \in G} I_l[i,j],\ "
    r"\left|L(A_l[G] \leftarrow 0) - L\right|\right)",
    "Rank correlation over layers l, for each prompt, of saliency added over a group G of edges and the size "
    "of the change of the loss L when their attention is set to 0 in that layer.",
)
