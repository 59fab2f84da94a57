"""Names and titles of the shipped data sets."""

from types import MappingProxyType
from typing import Final

IPUMS_1940_CITY: Final = "ipums1940_city"
COVID_US_STATES: Final = "covid_us_states"

SHIPPED: Final = MappingProxyType(
    {
        IPUMS_1940_CITY: "City of residence, 1940 census, 1 % sample (IPUMS)",
        "kosarak_prefix": "One page per visitor, first 36,682 visits of Kosarak",
        "kosarak_reconstructed": "RECONSTRUCTED, not real: one page per visitor, scale of Kosarak",
        COVID_US_STATES: "Confirmed COVID-19 cases by US state, until 18 April 2021",
    }
)
