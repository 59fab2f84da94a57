import{a}from"./chunk-IGOWTAQO.js";export{a as messages};
