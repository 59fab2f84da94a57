"""Every scenario, in the order in which a report shows them."""

from typing import Final

from deploy.audit.code.accountant import play_accountant
from deploy.audit.code.batches import play_batches
from deploy.audit.code.covert_bits import play_covert_bits
from deploy.audit.code.devices import play_devices
from deploy.audit.code.draws import play_draws
from deploy.audit.code.estimates import play_estimates
from deploy.audit.code.generators import play_generators
from deploy.audit.code.mixing import play_mixing
from deploy.audit.code.operators import play_operators
from deploy.audit.code.orders import play_orders
from deploy.audit.code.policies import play_policies
from deploy.audit.code.proofs import play_proofs
from deploy.audit.code.randomizers import play_panel, play_randomizer
from deploy.audit.code.secrecy import play_secrets
from deploy.audit.code.settings import play_settings
from deploy.audit.code.small_rules import play_small_rules
from deploy.audit.code.startup import play_startup
from deploy.audit.code.stores import play_stores
from deploy.audit.code.value_claims import play_value_claims
from deploy.audit.code.value_devices import play_value_devices
from deploy.audit.code.value_estimates import play_value_estimates
from deploy.audit.code.value_games import play_values
from deploy.audit.integrity import scenarios as integrity
from deploy.audit.privacy.alone import play_n_minus_one, play_skippers
from deploy.audit.privacy.colluders import play_colluders
from deploy.audit.privacy.linking import play_linking
from deploy.audit.privacy.other_designs import play_pure_dump, play_shuffler_dummies
from deploy.audit.privacy.partition import play_partition
from deploy.audit.privacy.pooled import play_pooled
from deploy.audit.privacy.printed import play_printed
from deploy.audit.privacy.rounds import play_rounds
from deploy.audit.scenario import EVERY_KIND, Scenario
from deploy.audit.services import scenarios as services

SCENARIOS: Final = (
    Scenario(
        name="shuffler+analyzer",
        title="Shuffler and analyzer pool what they saw",
        seconds=4,
        play=play_pooled,
    ),
    Scenario(
        name="colluders",
        title="The analyzer, alone and with colluding users",
        seconds=10,
        play=play_colluders,
    ),
    Scenario(
        name="skippers", title="Users do not add their dummies", seconds=5, play=play_skippers
    ),
    Scenario(
        name="n-1",
        title="The shuffler replaces all reports but one person's",
        seconds=1.5,
        play=play_n_minus_one,
    ),
    Scenario(name="rounds", title="The same people are asked again", seconds=4, play=play_rounds),
    Scenario(
        name="partition",
        title="The analyzer cuts its users into groups",
        seconds=2,
        play=play_partition,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="linking", title="Messages are linked by their seeds", seconds=1, play=play_linking
    ),
    Scenario(
        name="reused-seeds",
        title="Dummies reuse their user's seed, as OD-HP is printed",
        seconds=3,
        play=play_printed,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="puredump",
        title="pureDUMP against shuffler and analyzer together",
        seconds=1.5,
        play=play_pure_dump,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="shuffler-dummies",
        title="The shuffler knows the dummies that it made",
        seconds=1.5,
        play=play_shuffler_dummies,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="orders",
        title="Every order of a batch is as likely",
        seconds=5,
        play=play_orders,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="generators",
        title="Production's generator",
        seconds=1,
        play=play_generators,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="devices",
        title="Answers as devices make them",
        seconds=5,
        play=play_devices,
    ),
    Scenario(
        name="randomizer",
        title="The task's randomizer has its law",
        seconds=2,
        play=play_randomizer,
    ),
    Scenario(
        name="mechanisms",
        title="Every mechanism has its law",
        seconds=5,
        play=play_panel,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="batches",
        title="Whole batches have their law",
        seconds=0.5,
        play=play_batches,
    ),
    Scenario(
        name="draws",
        title="Numbers of dummies have their laws",
        seconds=2,
        play=play_draws,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="estimates",
        title="Shares are estimated without bias",
        seconds=4,
        play=play_estimates,
    ),
    Scenario(
        name="accountant",
        title="Guarantees are computed rightly",
        seconds=6,
        play=play_accountant,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="kinds",
        title="Texts, numbers and pairs keep their local epsilon",
        seconds=3,
        play=play_values,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="kind-estimates",
        title="Means, shares and bits are counted without bias",
        seconds=1,
        play=play_value_estimates,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="kind-devices",
        title="Devices' answers with texts, numbers and pairs",
        seconds=1,
        play=play_value_devices,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="kind-claims",
        title="Claims of texts, numbers and pairs",
        seconds=1,
        play=play_value_claims,
        kinds=EVERY_KIND,
    ),
    *services.SCENARIOS,
    *integrity.SCENARIOS,
    Scenario(
        name="mixing",
        title="A batch is mixed as it was drawn",
        seconds=1,
        play=play_mixing,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="device-rules",
        title="A device's limits, one by one",
        seconds=0.5,
        play=play_policies,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="covert-bits",
        title="What is sealed shows nothing on its outside",
        seconds=0.7,
        play=play_covert_bits,
    ),
    Scenario(
        name="startup",
        title="How services are started, and what they do by themselves",
        seconds=1,
        play=play_startup,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="operators",
        title="What operators are told",
        seconds=1,
        play=play_operators,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="settings",
        title="Settings, connections and drafts",
        seconds=0.5,
        play=play_settings,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="secrets",
        title="Keys, seals and tokens",
        seconds=0.5,
        play=play_secrets,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="proofs",
        title="Signatures, and proofs of having been counted",
        seconds=0.5,
        play=play_proofs,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="stores",
        title="What the shuffler stores",
        seconds=0.2,
        play=play_stores,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="small-rules",
        title="Small rules that others rely on",
        seconds=1,
        play=play_small_rules,
        kinds=EVERY_KIND,
    ),
)
