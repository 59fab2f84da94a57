import{a}from"./chunk-NK3I2NL6.js";export{a as messages};
