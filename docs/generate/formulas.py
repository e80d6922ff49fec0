"""What each method and each preconditioner computes, in one formula."""

_RESIDUAL = r"x_k = \operatorname*{arg\,min}_{x \in x_0 + M \mathcal{K}_k(A M,\, r_0)} \| b - A x \|_2"
_PLAIN = r"x_k = \operatorname*{arg\,min}_{x \in x_0 + \mathcal{K}_k(A,\, r_0)} \| b - A x \|_2"
_ENERGY = r"x_k = \operatorname*{arg\,min}_{x \in x_0 + \mathcal{K}_k(M A,\, M r_0)} \| x - x^* \|_A"
_NORMAL = r"x_k = \operatorname*{arg\,min}_{x \in \mathcal{K}_k(A^H A,\, A^H b)}"
_BICG = r"r_k \perp \mathcal{K}_k(A^H, \tilde r_0), \qquad x_k \in x_0 + \mathcal{K}_k(A, r_0)"
_CG_STEP = (
    r"\begin{aligned} \alpha_k &= \frac{r_k^H M r_k}{p_k^H A p_k}, & x_{k+1} &= x_k + \alpha_k p_k, & r_{k+1} &= r_k -"
    r" \alpha_k A p_k, \\ \beta_k &= \frac{r_{k+1}^H M r_{k+1}}{r_k^H M r_k}, & p_{k+1} &= M r_{k+1} + \beta_k p_k"
    r" \end{aligned}"
)
_MIXED = r"A d_k = r_k \ \text{in single precision}, \qquad x_{k+1} = x_k + d_k, \quad r_{k+1} = r_k - A d_k \ \text{in double}"

METHODS: dict[str, tuple[str, ...]] = {
    "CG": (_ENERGY, _CG_STEP),
    "CG-adaptive": (
        _ENERGY,
        r"\alpha_k = \frac{p_k^H r_k}{p_k^H A p_k}, \qquad p_{k+1} = M r_{k+1} - \frac{(A p_k)^H M r_{k+1}}{p_k^H A p_k} \, p_k",
    ),
    "CG-single-reduction": (
        _ENERGY,
        r"\begin{aligned} u_k &= M r_k, & \beta_k &= \frac{r_k^H u_k}{r_{k-1}^H u_{k-1}}, & p_k &= u_k + \beta_k p_{k-1},"
        r" & s_k &= A u_k + \beta_k s_{k-1}, \\ \alpha_k &= \frac{r_k^H u_k}{u_k^H A u_k - \beta_k r_k^H u_k / \alpha_{k-1}}, &"
        r" x_{k+1} &= x_k + \alpha_k p_k, & r_{k+1} &= r_k - \alpha_k s_k \end{aligned}",
    ),
    "block-CG": (
        r"X_{k+1} = X_k + P_k (P_k^H A P_k)^{-1} P_k^H R_k, \qquad P_k^H P_k = I, \qquad P_{k+1}^H A P_k = 0",
    ),
    "biCG-stab": (
        r"r_k = (I - \omega_k A) \cdots (I - \omega_1 A)\, p_k(A)\, r_0, \qquad \omega_k = \operatorname*{arg\,min}_\omega"
        r" \| (I - \omega A) s_k \|_2",
    ),
    "biCG-stab(2)": (
        r"r_{k+2} = (I - \gamma_1 A - \gamma_2 A^2)\, s_k, \qquad \gamma = \operatorname*{arg\,min}_\gamma"
        r" \| s_k - \gamma_1 A s_k - \gamma_2 A^2 s_k \|_2",
    ),
    "biCG-stab(4)": (
        r"r_{k+4} = \Big(I - \sum_{i=1}^{4} \gamma_i A^i\Big)\, s_k, \qquad \gamma = \operatorname*{arg\,min}_\gamma"
        r" \Big\| s_k - \sum_{i=1}^{4} \gamma_i A^i s_k \Big\|_2",
    ),
    "GMRES": (_RESIDUAL, r"A M V_k = V_{k+1} \bar H_k, \qquad y = \operatorname*{arg\,min} \big\| \beta e_1 - \bar H_k y \big\|_2,"
        r" \quad x_k = x_0 + M V_k y"),
    "FGMRES": (r"A Z_k = V_{k+1} \bar H_k, \quad z_j = M_j v_j, \qquad x_k = x_0 + Z_k"
        r" \operatorname*{arg\,min}_y \big\| \beta e_1 - \bar H_k y \big\|_2",),
    "IDR(4)": (r"r_k \in \mathcal{G}_j = (I - \omega_j A)\,(\mathcal{G}_{j-1} \cap P^\perp), \qquad"
        r" \dim \mathcal{G}_j = \dim \mathcal{G}_{j-1} - s, \quad P \in \mathbb{C}^{n \times s}",),
    "COCR": (
        r"r_k \perp \overline{A \, \mathcal{K}_k(A, r_0)}: \qquad \alpha_k = \frac{r_k^T A r_k}{(A p_k)^T A p_k}, \quad"
        r" \beta_k = \frac{r_{k+1}^T A r_{k+1}}{r_k^T A r_k}, \quad A^T = A",
    ),
    "MINRES": (_PLAIN, r"A V_k = V_{k+1} \bar T_k, \qquad \bar T_k \ \text{tridiagonal}"),
    "LSMR": (_NORMAL + r" \| A^H (b - A x) \|_2",),
    "CGLS": (_NORMAL + r" \| b - A x \|_2",),
    "mixed-CG": (_MIXED,),
    "mixed-biCG-stab(2)": (_MIXED,),
    "direct": (r"P A = L U, \quad x = U^{-1} L^{-1} P b \qquad \text{or} \qquad A = L L^H",),
    "scipy-direct": (r"P_r A P_c = L U, \qquad L,\ U \ \text{sparse}",),
    "sparse-direct": (r"P_r A P_c = L U \qquad \text{or} \qquad P A P^T = L D L^H",),
    "fast-direct": (r"A = \sum_k I \otimes A_k \otimes I, \quad A_k = Q_k \Lambda_k Q_k^{-1}, \qquad"
        r" x = Q \Big(\sum_k \Lambda_k\Big)^{-1} Q^{-1} b, \quad Q = Q_1 \otimes \cdots \otimes Q_d",),
    "banded-direct": (r"\begin{aligned} L_i x_{i-1} + D_i x_i + U_i x_{i+1} &= b_i \quad \text{without the odd blocks:} \\"
        r" -L_i D_{i-1}^{-1} L_{i-1} x_{i-2} + (D_i - L_i D_{i-1}^{-1} U_{i-1} - U_i D_{i+1}^{-1} L_{i+1})\, x_i &"
        r" - U_i D_{i+1}^{-1} U_{i+1} x_{i+2} \\ = b_i - L_i D_{i-1}^{-1} b_{i-1} &- U_i D_{i+1}^{-1} b_{i+1}"
        r" \end{aligned}",),
    "scipy-CG": (_ENERGY,),
    "scipy-GMres": (_PLAIN,),
    "scipy-lGMres": (r"x_k = \operatorname*{arg\,min}_{x \in x_0 + \mathcal{K}_m(A, r_0) + \operatorname{span}(z_1, \dots, z_q)}"
        r" \| b - A x \|_2, \qquad z_i \ \text{corrections of earlier cycles}",),
    "scipy-biCG": (_BICG,),
    "scipy-biCG-stab": (_BICG, r"r_k = (I - \omega_k A)\, s_k"),
    "scipy-CGS": (r"r_k = p_k(A)^2 \, r_0, \qquad p_k \ \text{the residual polynomial of biCG}",),
    "scipy-QMR": (r"x_k = x_0 + V_k y, \qquad y = \operatorname*{arg\,min} \big\| \beta e_1 - \bar T_k y \big\|_2, \qquad"
        r" A V_k = V_{k+1} \bar T_k",),
    "scipy-TFQMR": (r"x_k = x_0 + Y_k \operatorname*{arg\,min}_z \big\| \beta e_1 - \bar B_k z \big\|_2, \qquad"
        r" A Y_k = W_{k+1} \bar B_k \ \text{from CGS}",),
    "scipy-GCrotMK": (r"x = \operatorname*{arg\,min}_{x \in x_0 + \operatorname{span}(U) + \mathcal{K}_m((I - C C^H) A,\, r_0)}"
        r" \| b - A x \|_2, \qquad A U = C, \ C^H C = I",),
    "scipy-MINRES": (_PLAIN,),
    "scipy-lsqr": (_NORMAL + r" \| b - A x \|_2",),
    "scipy-lsmr": (_NORMAL + r" \| A^H (b - A x) \|_2",),
}  # fmt: skip
"""Of each entry of the registry of methods."""

PRECONDITIONERS: dict[str, tuple[str, ...]] = {
    "jacobi": (r"M = D^{-1}, \qquad D = \operatorname{diag}(A)",),
    "block-jacobi": (r"M = \operatorname{blockdiag}(A_{11}^{-1}, \dots, A_{pp}^{-1})",),
    "ssor": (r"M = (2 - \omega)\, \big(\tfrac{1}{\omega} D + U\big)^{-1} \tfrac{1}{\omega} D \, \big(\tfrac{1}{\omega} D + L\big)^{-1},"
        r" \qquad A = L + D + U",),
    "chebyshev": (r"I - M A = \frac{T_k\big((\theta I - D^{-1} A) / \delta\big)}{T_k(\theta / \delta)}, \qquad"
        r" \lambda(D^{-1} A) \subset [\theta - \delta,\ \theta + \delta]",),
    "ilu": (r"M = U^{-1} L^{-1}, \qquad (L U)_{ij} = a_{ij} \ \text{wherever} \ a_{ij} \neq 0",),
    "ic": (r"M = L^{-H} L^{-1}, \qquad (L L^H)_{ij} = a_{ij} \ \text{wherever} \ a_{ij} \neq 0",),
    "amg": (r"I - M A = S^H (I - P A_c^{-1} P^H A)\, S, \qquad A_c = P^H A P \ \text{by the same on the next level}",),
    "multigrid": (r"I - M A = S^H (I - P A_c^{-1} P^H A)\, S, \qquad P \ \text{follows the coefficients on the grid}",),
    "fast": (r"M = S \, \Big(\sum_k I \otimes \bar A_k \otimes I\Big)^{-1} S, \qquad"
        r" S^{-1} A S^{-1} \approx \sum_k I \otimes \bar A_k \otimes I",),
    "cluster": (r"M = D^{-1} + Z (Z^H A Z)^{-1} Z^H, \qquad z_{ij} = 1 \ \text{for unknown} \ i \ \text{in cluster} \ j",),
    "schwarz": (r"M = \sum_i R_i^T (R_i A R_i^T)^{-1} R_i + Z (Z^H A Z)^{-1} Z^H, \qquad"
        r" z_{ij} = 1 \ \text{for unknown} \ i \ \text{in cluster} \ j",),
    "shifted-laplacian": (r"M \approx \big(A + i \beta K^2\big)^{-1}, \qquad A = -\Delta - K^2; \qquad"
        r" M \approx \big(A + (1 + \beta) K^2\big)^{-1} \ \text{for a real} \ A",),
}  # fmt: skip
"""Of each kind of the registry of preconditioners."""

PRECONDITIONED_FROM_THE_RIGHT = ("biCG-stab", "biCG-stab(2)", "biCG-stab(4)", "IDR(4)")
"""Methods whose formula is written without M: with one, A M takes the place of A."""


def display(lines: tuple[str, ...]) -> str:
    """The formulas as Markdown."""
    return "\n\n".join(f"$$\n{line}\n$$" for line in lines)
